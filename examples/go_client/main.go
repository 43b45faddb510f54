// Asks a policy server for actions, from the .proto alone. It prints the most probable action of each agent for a
// made-up observation, first by a call and then by a stream:
//
//	go_client ADDRESS
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"math"
	"os"
	"time"

	"google.golang.org/grpc"
	pb "troupe/v1"
)

// Appends an observation of 0, 0.25, 0.5 ...: bytes, or little-endian floats, as the policy takes it.
func appendObservation(obs []byte, policy *pb.PolicyDescription) []byte {
	for i := uint32(0); i < policy.ObsSize; i++ {
		if policy.ObsDtype == pb.DType_DTYPE_UINT8 {
			obs = append(obs, byte(i/4))
		} else {
			obs = binary.LittleEndian.AppendUint32(obs, math.Float32bits(float32(i)/4))
		}
	}
	return obs
}

// A row for each agent that plays the policy.
func requestFor(policy *pb.PolicyDescription, agents []string) *pb.ComputeActionsRequest {
	query := &pb.QueryRows{PolicyId: policy.PolicyId, Rows: uint32(len(policy.AgentSlots)), ObsDtype: policy.ObsDtype}
	for _, slot := range policy.AgentSlots {
		query.AgentIds = append(query.AgentIds, agents[slot])
		query.Obs = appendObservation(query.Obs, policy)
	}
	return &pb.ComputeActionsRequest{Deterministic: true, Policies: []*pb.QueryRows{query}}
}

func show(kind string, reply *pb.ComputeActionsReply) {
	for _, answer := range reply.Policies {
		words := len(answer.ActionDtypes)
		for row := 0; row < int(answer.Rows); row++ {
			fmt.Printf("%s %s:", kind, answer.PolicyId)
			for word, dtype := range answer.ActionDtypes {
				bits := binary.LittleEndian.Uint32(answer.Actions[4*(row*words+word):])
				if dtype == pb.DType_DTYPE_FLOAT32 {
					fmt.Printf(" %.4f", math.Float32frombits(bits))
				} else {
					fmt.Printf(" %d", int32(bits))
				}
			}
			fmt.Printf(" log_prob %.4f\n", answer.ActionLogp[row])
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err) // "rpc error: code = NotFound desc = there is no policy ..."
	}
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("go_client ADDRESS")
	}
	connection, err := grpc.Dial(os.Args[1], grpc.WithInsecure())
	check(err)
	defer connection.Close()
	client := pb.NewQueryClient(connection)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	described, err := client.DescribePolicies(ctx, &pb.DescribePoliciesRequest{})
	check(err)
	for _, policy := range described.Policies {
		fmt.Printf("%s: %s -> %s\n", policy.PolicyId, policy.ObservationSpace, policy.ActionSpace)
	}
	// One stream for all that you ask: it costs less than calls. Its answers come in the order of its requests.
	stream, err := client.StreamActions(ctx)
	check(err)
	for _, policy := range described.Policies {
		if len(policy.AgentSlots) == 0 { // no agent plays it
			continue
		}
		request := requestFor(policy, described.AgentIds)
		reply, err := client.ComputeActions(ctx, request)
		check(err)
		show("call", reply)
		check(stream.Send(request))
		reply, err = stream.Recv()
		check(err)
		if reply.Error != nil { // a request that is refused ends nothing
			log.Fatal(reply.Error.Message)
		}
		show("stream", reply)
	}
	check(stream.CloseSend())
}
