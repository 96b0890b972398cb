// Puts a transport interface together: channels (channel/) whose
// faults are hidden (recover/). Users of the transport include this.
#pragma once

#include <memory>
#include <string>

#include "uct_mp/channel/interface.h"

namespace ucx_mp {

// `devices`, `services`, `events`, `keys`, `handlers` (channel::kAmIds entries) must outlive it. On failure `error` is
// one line. Slow path.
[[nodiscard]] Status open_interface(const verbs::DeviceSet& devices, const channel::Config& config, Services& services,
                                    channel::Events& events, const verbs::KeyTable& keys,
                                    const channel::AmHandler* handlers, std::unique_ptr<channel::Interface>& out,
                                    std::string& error);

} // namespace ucx_mp
