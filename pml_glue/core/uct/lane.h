// One transport of UCT: its memory domain and interface. Owns both. Slow path, but for the fields that endpoints read.
#pragma once

#include <uct/api/uct.h>

#include <string>
#include <vector>

#include "pml_glue/core/port.h"

namespace ucx_mp::glue {

struct Traffic {
    std::uint64_t messages = 0, message_bytes = 0, moves = 0, moved_bytes = 0; // posted; moves: writes and reads
};

class Lane {
public:
    // False: there is no such transport here, or it cannot be opened, and `error` says why in one line.
    // `misled`: by a setting of the user's, for which another transport is no answer; the transport has said which.
    // `on_error`: UCT's handler for peers that fail, with `argument`; for transports that tell of them.
    [[nodiscard]] bool open(const std::string& transport, uct_worker_h worker, uct_error_handler_t on_error,
                            void* argument, std::string& error);
    Lane() = default;
    Lane(const Lane&) = delete;
    ~Lane();

    [[nodiscard]] bool misled() const { return status_ == UCS_ERR_INVALID_PARAM; }

    [[nodiscard]] const std::string& transport() const { return transport_; }
    [[nodiscard]] uct_component_h component() const { return component_; }
    [[nodiscard]] uct_md_h domain() const { return domain_; }
    [[nodiscard]] uct_iface_h interface() const { return interface_; }
    [[nodiscard]] const uct_iface_attr_t& attributes() const { return attributes_; }
    [[nodiscard]] const uct_md_attr_t& domain_attributes() const { return domain_attributes_; }
    [[nodiscard]] bool can(std::uint64_t flags) const { return (attributes_.cap.flags & flags) == flags; }
    [[nodiscard]] std::vector<std::byte> device_address() const;
    [[nodiscard]] std::vector<std::byte> interface_address() const;
    // Null, and `error`: not reachable by this transport.
    [[nodiscard]] uct_ep_h connect(const std::byte* device, const std::byte* interface, std::string& error);
    // For events: -1, and false: it has none. Shared memory tells only of messages that ask for it, which none does.
    [[nodiscard]] bool wakes() const;
    [[nodiscard]] int event_descriptor();
    // False: there is something to do already.
    [[nodiscard]] bool arm();
    Traffic traffic;

private:
    [[nodiscard]] bool open_domain(uct_component_h component, const char* name, std::string& device);
    [[nodiscard]] bool find_domain(std::string& device, std::string& error);
    [[nodiscard]] std::string why_not() const;

    std::string transport_;
    ucs_status_t status_ = UCS_OK; // error of the call that could not open it
    uct_component_h component_ = nullptr;
    uct_md_h domain_ = nullptr;
    uct_iface_h interface_ = nullptr;
    uct_iface_attr_t attributes_{};
    uct_md_attr_t domain_attributes_{};
    int event_fd_ = -1; // UCT's
};

} // namespace ucx_mp::glue
