#include "uct_mp/interface/open.h"

#include "uct_mp/recover/recoverer.h"

namespace ucx_mp {

Status open_interface(const verbs::DeviceSet& devices, const channel::Config& config, Services& services,
                      channel::Events& events, const verbs::KeyTable& keys, const channel::AmHandler* handlers,
                      std::unique_ptr<channel::Interface>& out, std::string& error) {
    return channel::Interface::open(devices, config, services, events, keys, handlers, recover::Recoverer::make, out,
                                    error);
}

} // namespace ucx_mp
