#include "pml_glue/core/uct/uct_port.h"

#include <ucs/async/async_fwd.h>

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "pml_glue/core/no_memory.h"
#include "pml_glue/core/uct/host_identity.h"
#include "pml_glue/core/uct/transports.h"
#include "pml_glue/core/wire.h"
#include "uct_mp/api/uct_mp.h"

namespace ucx_mp::glue {

namespace {

constexpr auto kDrain = std::chrono::seconds(2);
constexpr std::size_t kReadable = 256; // no transport's address is longer

bool of_host(const std::string& transport) { return transport == "posix" || transport == "sysv"; }
bool of_network(const std::string& transport) {
    return transport != "self" && transport != "cma" && !of_host(transport);
}

// The cost of a copy here, ns per byte: messages are neither all in the nearest cache nor all out of it. About 0.1 ms.
double cost_of_copy() {
    constexpr std::size_t kBytes = std::size_t{256} << 10;
    std::vector<std::byte> from(kBytes, std::byte{1}), to(kBytes, std::byte{2});
    double best = 1e9;
    for (int i = 0; i < 4; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        std::memcpy(to.data(), from.data(), kBytes);
        asm volatile("" : : "r"(to.data()) : "memory"); // somebody reads it
        const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
        best = std::min(best, took.count() / static_cast<double>(kBytes));
    }
    return best;
}

// The address: version, host, then for each transport three strings with a byte of length in front.
void put(std::vector<std::byte>& out, const void* data, std::size_t length) {
    const auto* const bytes = static_cast<const std::byte*>(data);
    out.push_back(static_cast<std::byte>(length));
    out.insert(out.end(), bytes, bytes + length);
}

struct Offered {
    std::string transport;
    std::vector<std::byte> device, interface;
};

bool take(const std::byte*& at, const std::byte* end, std::vector<std::byte>& out) {
    if (at == end) return false;
    const auto length = std::to_integer<std::ptrdiff_t>(*at++);
    if (end - at < length) return false;
    out.assign(at, at + length);
    at += length;
    return true;
}

bool parse(const std::byte* data, std::size_t length, std::uint64_t& host, std::vector<Offered>& offers) {
    const std::byte *at = data, *const end = data + length;
    if (length < 1 + sizeof host || std::to_integer<std::uint8_t>(*at++) != wire::kWireVersion) return false;
    std::memcpy(&host, at, sizeof host);
    at += sizeof host;
    while (at != end) {
        Offered offer;
        std::vector<std::byte> name;
        if (!take(at, end, name) || !take(at, end, offer.device) || !take(at, end, offer.interface)) return false;
        // UCT is not told their length, and reads as many bytes as it thinks they have.
        offer.device.resize(kReadable);
        offer.interface.resize(kReadable);
        offer.transport.assign(reinterpret_cast<const char*>(name.data()), name.size());
        offers.push_back(std::move(offer));
    }
    return true;
}

const Offered* find(const std::vector<Offered>& offers, const std::string& transport) {
    for (const Offered& offer : offers)
        if (offer.transport == transport) return &offer;
    return nullptr;
}

// Asked once: the kernel may forbid it (another user namespace, ptrace's rules), although both
// are on one host. It checks that before it looks at the address, and there is none. `cma`:
// its address at UCT begins with the process's number; the top bit says that more follows.
bool may_read(const std::vector<std::byte>& cma) {
    std::uint32_t process;
    if (cma.size() < sizeof process) return false;
    std::memcpy(&process, cma.data(), sizeof process);
    char byte;
    const iovec here{&byte, 1}, there{nullptr, 1};
    return process_vm_readv(static_cast<pid_t>(process & 0x7fffffff), &here, 1, &there, 1, 0) >= 0 || errno == EFAULT;
}

} // namespace

bool UctPort::open(const Config& config, std::string& error) {
    error.clear();
    if (config.local != "auto" && config.local != "host" && config.local != "none") {
        error = "local=" + config.local + ": auto, host or none";
        return false;
    }
    share_host_ = config.local != "none";
    host_ = host_identity(config.local == "auto");
    ucs_status_t status = ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async_);
    if (status == UCS_OK) status = uct_worker_create(async_, UCS_THREAD_MODE_SINGLE, &worker_);
    if (status != UCS_OK) {
        error = std::string("UCT has no worker: ") + ucs_status_string(status);
        return false;
    }
    copy_ = cost_of_copy();
    const std::string transports = transports_of(config.transports, std::getenv("UCX_TLS"));
    std::istringstream names(transports);
    bool network = false;
    for (std::string name; std::getline(names, name, ',');) {
        // Every adapter has RC: later transports of the list would never be the first to reach a peer, but be polled.
        if (of_network(name) && lane("mp_rc")) continue;
        auto lane = std::make_unique<Lane>();
        std::string why;
        if (lane->open(name, worker_, on_error, this, why)) {
            network |= of_network(name);
            lanes_.push_back(std::move(lane));
        } else if (of_network(name) && lane->misled()) {
            error = why;
            return false;
        } else if (of_network(name) && error.empty()) {
            error = why;
        }
    }
    if (!network && error.empty()) error = "transports=" + transports + ": none of a network";
    return network;
}

UctPort::~UctPort() {
    tasks_.reset();
    lanes_.clear();
    if (worker_) uct_worker_destroy(worker_);
    if (async_) ucs_async_context_destroy(async_);
}

ucs_status_t UctPort::on_message(void* called, void* data, std::size_t length, unsigned) {
    const auto& to = *static_cast<const MessageHandlers::Called*>(called);
    or_end("taking a message", [&] { to(static_cast<const std::byte*>(data), length); });
    return UCS_OK;
}

void UctPort::handle(MessageKind kind, Handler handler, void* argument) {
    handlers_.set(kind, handler, argument);
    for (const auto& lane : lanes_)
        if (lane->can(UCT_IFACE_FLAG_AM_BCOPY))
            uct_iface_set_am_handler(lane->interface(), kind, on_message, &handlers_.of(kind), 0);
}

std::vector<int> UctPort::event_descriptors() {
    std::vector<int> all;
    for (const auto& lane : lanes_)
        if (const int fd = lane->event_descriptor(); fd >= 0) all.push_back(fd);
    return all;
}

bool UctPort::arm() {
    bool armed = true;
    for (const auto& lane : lanes_) armed = lane->arm() && armed;
    return armed;
}

bool UctPort::all_wake() const {
    return std::all_of(endpoints_.begin(), endpoints_.end(), [](const UctEndpoint* endpoint) {
        return endpoint->lane().wakes() || endpoint->lane().transport() == "self";
    });
}

ucs_status_t UctPort::on_error(void* self, uct_ep_h endpoint, ucs_status_t) {
    UctPort& port = *static_cast<UctPort*>(self);
    for (UctEndpoint* each : port.endpoints_)
        if (each->uses(endpoint) && port.listener_)
            or_end("hearing of a failure", [&] { port.listener_->endpoint_failed(*each); });
    return UCS_OK;
}

std::uint64_t UctPort::host() const {
    const bool shares =
        share_host_ && std::ranges::any_of(lanes_, [](const auto& lane) { return of_host(lane->transport()); });
    return shares ? host_ : 0;
}

std::vector<std::byte> UctPort::address() const {
    std::vector<std::byte> out{static_cast<std::byte>(wire::kWireVersion)};
    const auto* const host = reinterpret_cast<const std::byte*>(&host_);
    out.insert(out.end(), host, host + sizeof host_);
    for (const auto& lane : lanes_) {
        const auto device = lane->device_address(), interface = lane->interface_address();
        put(out, lane->transport().data(), lane->transport().size());
        put(out, device.data(), device.size());
        put(out, interface.data(), interface.size());
    }
    return out;
}

Lane* UctPort::lane(const std::string& transport) const {
    for (const auto& lane : lanes_)
        if (lane->transport() == transport) return lane.get();
    return nullptr;
}

std::unique_ptr<Endpoint> UctPort::connect(const std::byte* address, std::size_t length, bool self,
                                           std::string& error) {
    std::uint64_t host;
    std::vector<Offered> offers;
    error.clear();
    if (!parse(address, length, host, offers)) {
        error = "its address is of another version, or broken";
        return nullptr;
    }
    const bool local = share_host_ && host == host_;
    for (const auto& lane : lanes_) {
        const std::string& name = lane->transport();
        const Offered* const offer = find(offers, name);
        if (!offer || name == "cma" || (name == "self" && !self) || (of_host(name) && !local)) continue;
        uct_ep* const endpoint = lane->connect(offer->device.data(), offer->interface.data(), error);
        if (!endpoint) continue;
        Mover mover = Mover::transport;
        Lane* moves = lane.get();
        uct_ep_h moving = endpoint;
        if (self && name == "self") {
            mover = Mover::processor;
            moves = nullptr;
            moving = nullptr;
        } else if (of_host(name)) {
            const Offered* const there = find(offers, "cma");
            moves = this->lane("cma");
            std::string why; // without it data goes in fragments
            moving = moves && there && may_read(there->interface)
                         ? moves->connect(there->device.data(), there->interface.data(), why)
                         : nullptr;
            if (!moving) mover = Mover::none;
        }
        auto made = std::make_unique<UctEndpoint>(*lane, endpoint, mover, moves, moving, copy_);
        endpoints_.push_back(made.get());
        return made;
    }
    if (error.empty()) error = "no transport that both sides have";
    return nullptr;
}

void UctPort::disconnect(std::unique_ptr<Endpoint> endpoint) {
    std::erase(endpoints_, static_cast<UctEndpoint*>(endpoint.get()));
}

namespace {
// Registered with every transport that writes and reads.
class UctExposed final : public Exposed {
public:
    UctExposed() = default;
    UctExposed(const UctExposed&) = delete;
    ~UctExposed() override {
        for (const auto& [lane, memory] : registered_)
            if (memory != UCT_MEM_HANDLE_NULL) uct_md_mem_dereg(lane->domain(), memory);
    }
    void add(Lane& lane, void* address, std::size_t length) {
        uct_mem_h memory = UCT_MEM_HANDLE_NULL;
        if ((lane.domain_attributes().cap.flags & UCT_MD_FLAG_REG) &&
            uct_md_mem_reg(lane.domain(), address, length, UCT_MD_MEM_ACCESS_RMA | UCT_MD_MEM_FLAG_HIDE_ERRORS,
                           &memory) != UCS_OK)
            return;
        registered_.emplace_back(&lane, memory);
    }
    [[nodiscard]] std::vector<std::byte> keys() const override {
        std::vector<std::byte> out, key;
        for (const auto& [lane, memory] : registered_) {
            key.assign(lane->domain_attributes().rkey_packed_size + 1, {}); // UCT may write nothing
            if (lane->domain_attributes().rkey_packed_size &&
                uct_md_mkey_pack(lane->domain(), memory, key.data()) != UCS_OK)
                continue; // its data then goes by messages
            put(out, lane->transport().data(), lane->transport().size());
            put(out, key.data(), key.size() - 1);
        }
        return out;
    }

private:
    std::vector<std::pair<Lane*, uct_mem_h>> registered_;
};
} // namespace

std::unique_ptr<Exposed> UctPort::expose(void* address, std::size_t length) {
    auto exposed = std::make_unique<UctExposed>();
    for (const auto& lane : lanes_)
        if (lane->can(UCT_IFACE_FLAG_PUT_ZCOPY | UCT_IFACE_FLAG_GET_ZCOPY) && !of_host(lane->transport()) &&
            lane->transport() != "self")
            exposed->add(*lane, address, length);
    return exposed;
}

TaskPort* UctPort::tasks() {
    for (const auto& lane : lanes_)
        if (!tasks_ && (lane->transport() == "mp_rc" || lane->transport() == "mp_dc"))
            tasks_ = std::make_unique<UctTasks>(*lane);
    return tasks_.get();
}

bool UctPort::fences_cost() const {
    return std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) {
        unsigned adapters = 0;
        return uct_mp_iface_query_adapters(lane->interface(), &adapters) == UCS_OK && adapters > 1;
    });
}

void UctPort::drain() {
    const auto until = std::chrono::steady_clock::now() + kDrain;
    for (UctEndpoint* endpoint : endpoints_)
        while (endpoint->flush() == UCS_INPROGRESS && std::chrono::steady_clock::now() < until) progress();
    endpoints_.clear();
}

std::string UctPort::traffic() const {
    std::ostringstream out;
    for (const auto& lane : lanes_) {
        const Traffic& traffic = lane->traffic;
        out << (lane == lanes_.front() ? "" : ", ") << lane->transport() << ' ' << traffic.messages << " messages "
            << traffic.message_bytes << " bytes";
        if (traffic.moves) out << " + " << traffic.moves << " moves " << traffic.moved_bytes << " bytes";
    }
    return out.str();
}

} // namespace ucx_mp::glue
