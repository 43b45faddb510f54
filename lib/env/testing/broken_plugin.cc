// Libraries that cannot be used: which one, a definition says.

#include "lib/env/plugin_abi.h"

#if defined(TROUPE_TEST_NO_ENTRY)

extern "C" TROUPE_ENV_EXPORT int troupe_something_else() { return 1; }

#elif defined(TROUPE_TEST_UNDEFINED)

extern "C" const TroupeEnvPlugin* troupe_not_there_at_all();
const TroupeEnvPlugin* troupe_env_plugin(uint32_t) { return troupe_not_there_at_all(); }

#elif defined(TROUPE_TEST_OTHER_VERSION)

const TroupeEnvPlugin* troupe_env_plugin(uint32_t) { return nullptr; }

#endif
