// A library as it was built before plugin_abi.h knew of pictures: with that header, which stands here as it was.

#include "lib/env/testing/plugin_abi_before_canvas.h"

namespace {

const TroupeEnvEntry kEntries[] = {{"still", "one agent that waits"}};

int32_t Make(const char*, const char*, TroupeEnv** env, TroupeEnvError*) {
  static int environment = 0;
  *env = reinterpret_cast<TroupeEnv*>(&environment);
  return TROUPE_ENV_OK;
}
const char* Spec(TroupeEnv*) {
  return R"json({"agents": [{"id": "a", "observation_space": "Box(-1, 1, [1])", "action_space": "Discrete(2)"}]})json";
}
int32_t Reset(TroupeEnv*, const TroupeEpisodeSeed*, const TroupeStepWriter* out, TroupeEnvError*) {
  *static_cast<float*>(out->observe(out->context, 0)) = 0.5f;
  return TROUPE_ENV_OK;
}
int32_t Step(TroupeEnv*, const TroupeActionWord* const*, const TroupeStepWriter* out, TroupeEnvError*) {
  out->terminate_all(out->context);
  return TROUPE_ENV_OK;
}
void Destroy(TroupeEnv*) {}

const TroupeEnvPlugin kTable = {TROUPE_ENV_ABI_VERSION, 1, kEntries, Make, Spec, Reset, Step, Destroy};

}  // namespace

const TroupeEnvPlugin* troupe_env_plugin(uint32_t) { return &kTable; }
