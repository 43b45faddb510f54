import com.google.protobuf.ByteString;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.stub.StreamObserver;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Locale;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import troupe.v1.Common.DType;
import troupe.v1.QueryGrpc;
import troupe.v1.QueryOuterClass.ComputeActionsReply;
import troupe.v1.QueryOuterClass.ComputeActionsRequest;
import troupe.v1.QueryOuterClass.DescribePoliciesReply;
import troupe.v1.QueryOuterClass.DescribePoliciesRequest;
import troupe.v1.QueryOuterClass.PolicyDescription;
import troupe.v1.QueryOuterClass.QueryActions;
import troupe.v1.QueryOuterClass.QueryRows;

/**
 * Asks a policy server for actions, from the .proto alone. It prints the most probable action of each agent for a
 * made-up observation, first by a call and then by a stream: AskPolicies HOST:PORT
 */
public final class AskPolicies {
  /** An observation of 0, 0.25, 0.5 ...: bytes, or little-endian floats, as the policy takes it. */
  static ByteString observation(PolicyDescription policy) {
    boolean isBytes = policy.getObsDtype() == DType.DTYPE_UINT8;
    ByteBuffer obs = ByteBuffer.allocate(policy.getObsSize() * (isBytes ? 1 : 4)).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < policy.getObsSize(); i++) {
      if (isBytes) obs.put((byte) (i / 4));
      else obs.putFloat(i / 4f);
    }
    return ByteString.copyFrom(obs.array());
  }

  /** A row for each agent that plays the policy. */
  static ComputeActionsRequest requestFor(PolicyDescription policy, DescribePoliciesReply described) {
    QueryRows.Builder query = QueryRows.newBuilder()
        .setPolicyId(policy.getPolicyId())
        .setRows(policy.getAgentSlotsCount())
        .setObsDtype(policy.getObsDtype());
    for (int slot : policy.getAgentSlotsList()) {
      query.addAgentIds(described.getAgentIds(slot)).setObs(query.getObs().concat(observation(policy)));
    }
    return ComputeActionsRequest.newBuilder().setDeterministic(true).addPolicies(query).build();
  }

  static void show(String kind, ComputeActionsReply reply) {
    for (QueryActions answer : reply.getPoliciesList()) {
      ByteBuffer words = answer.getActions().asReadOnlyByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
      for (int row = 0; row < answer.getRows(); row++) {
        StringBuilder line = new StringBuilder(kind + " " + answer.getPolicyId() + ":");
        for (DType dtype : answer.getActionDtypesList()) {
          if (dtype == DType.DTYPE_FLOAT32) {
            line.append(String.format(Locale.ROOT, " %.4f", words.getFloat()));
          } else {
            line.append(" " + words.getInt());
          }
        }
        System.out.println(line + String.format(Locale.ROOT, " log_prob %.4f", answer.getActionLogp(row)));
      }
    }
  }

  /** Puts what a stream answers, or the error that ends it, where the asking thread takes it. */
  static final class Answers implements StreamObserver<ComputeActionsReply> {
    private final LinkedBlockingQueue<Object> queue = new LinkedBlockingQueue<>();

    @Override public void onNext(ComputeActionsReply reply) { queue.add(reply); }
    @Override public void onError(Throwable error) { queue.add(error); }
    @Override public void onCompleted() { queue.add(new IllegalStateException("the server has ended the stream")); }

    ComputeActionsReply take() throws InterruptedException {
      Object answer = queue.poll(10, TimeUnit.SECONDS);
      if (answer == null) throw new IllegalStateException("no answer within 10 s");
      if (answer instanceof Throwable) throw new IllegalStateException((Throwable) answer);
      ComputeActionsReply reply = (ComputeActionsReply) answer;
      // A request that is refused ends nothing.
      if (reply.hasError()) throw new IllegalStateException(reply.getError().getMessage());
      return reply;
    }
  }

  public static void main(String[] arguments) throws InterruptedException {
    if (arguments.length != 1) {
      System.err.println("AskPolicies HOST:PORT");
      System.exit(2);
    }
    ManagedChannel channel = ManagedChannelBuilder.forTarget(arguments[0]).usePlaintext().build();
    try {
      QueryGrpc.QueryBlockingStub calls = QueryGrpc.newBlockingStub(channel).withDeadlineAfter(10, TimeUnit.SECONDS);
      DescribePoliciesReply described = calls.describePolicies(DescribePoliciesRequest.getDefaultInstance());
      for (PolicyDescription policy : described.getPoliciesList()) {
        System.out.println(policy.getPolicyId() + ": " + policy.getObservationSpace() + " -> " + policy.getActionSpace());
      }
      // One stream for all that you ask: it costs less than calls. Its answers come in the order of its requests.
      Answers answers = new Answers();
      StreamObserver<ComputeActionsRequest> stream = QueryGrpc.newStub(channel).streamActions(answers);
      for (PolicyDescription policy : described.getPoliciesList()) {
        if (policy.getAgentSlotsCount() == 0) continue; // no agent plays it
        ComputeActionsRequest request = requestFor(policy, described);
        show("call", calls.computeActions(request));
        stream.onNext(request);
        show("stream", answers.take());
      }
      stream.onCompleted();
    } finally {
      channel.shutdownNow();
    }
  }
}
