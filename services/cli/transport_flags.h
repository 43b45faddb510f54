#pragma once

#include <string>

#include "lib/rpc/transport/transport.h"
#include <CLI/CLI.hpp>

namespace troupe::services {

/// Adds the flags of every command that connects to another process. `verb`: what it does there, for the help. The
/// command line outlives `security`'s use.
inline void AddTransportFlags(CLI::App* command, const std::string& verb, rpc::TransportSecurity* security) {
  command->add_flag("--insecure-plaintext-network", security->insecure_plaintext_network,
                    verb + " without encryption and authentication beyond this machine");
  command->add_flag("--use-http-proxy", security->use_http_proxy,
                    "connect through the proxy that the environment names (http_proxy), which is ignored otherwise");
}

}  // namespace troupe::services
