// The port over UCT's public API: a worker, and an interface for each transport that the program wants
// and the machine has. The transport to a peer is chosen when it is connected: `self` to this process, shared memory to
// processes of the same host (with `cma` for the data). To others it is the first network transport that both sides
// have. Behind mp_rc, which all adapters have, no other one is opened.
//
// Shared memory tells of a peer that has died only when it is asked (Endpoint::check()).
#pragma once

#include "pml_glue/core/uct/endpoint.h"
#include "pml_glue/core/uct/uct_tasks.h"

namespace ucx_mp::glue {

class UctPort final : public Port {
public:
    struct Config {
        std::string transports; // by comma; order is preference. Names of UCT: self, posix, sysv, cma, mp_rc, mp_dc.
                                // Or "auto": transports.h
        std::string local;      // "auto", "host", "none": see mp_core.h
    };
    // False: nothing is open, and `error` has one line. A network transport of the list must be there; those of the
    // host may be missing.
    [[nodiscard]] bool open(const Config& config, std::string& error);
    UctPort() = default;
    UctPort(const UctPort&) = delete;
    ~UctPort() override;

    void handle(MessageKind kind, Handler handler, void* argument) override;
    [[nodiscard]] std::vector<int> event_descriptors() override;
    [[nodiscard]] bool arm() override;
    [[nodiscard]] bool all_wake() const override;
    void listen(FailureListener& listener) override { listener_ = &listener; }
    [[nodiscard]] std::uint64_t host() const override;
    [[nodiscard]] std::vector<std::byte> address() const override;
    [[nodiscard]] std::unique_ptr<Endpoint> connect(const std::byte* address, std::size_t length, bool self,
                                                    std::string& error) override;
    void disconnect(std::unique_ptr<Endpoint> endpoint) override;
    [[nodiscard]] std::unique_ptr<Exposed> expose(void* address, std::size_t length) override;
    unsigned progress() override { return uct_worker_progress(worker_); }
    [[nodiscard]] bool fences_cost() const override;
    [[nodiscard]] TaskPort* tasks() override;
    void drain() override;
    [[nodiscard]] std::string traffic() const override;

private:
    static ucs_status_t on_message(void* called, void* data, std::size_t length, unsigned flags);
    static ucs_status_t on_error(void* self, uct_ep_h endpoint, ucs_status_t status);
    [[nodiscard]] Lane* lane(const std::string& transport) const;

    ucs_async_context_t* async_ = nullptr;
    uct_worker_h worker_ = nullptr;
    std::vector<std::unique_ptr<Lane>> lanes_;
    std::unique_ptr<UctTasks> tasks_; // when it has been asked for
    std::vector<UctEndpoint*> endpoints_;
    FailureListener* listener_ = nullptr;
    std::uint64_t host_ = 0;
    bool share_host_ = true;
    double copy_ = 0; // the processor's, ns per byte
};

} // namespace ucx_mp::glue
