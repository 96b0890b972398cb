// Error mode PEER of UCP over our transports: a peer that is killed at any moment of a large transfer is reported once,
// every request ends, endpoints close and memory can go; a peer that is stopped for a while is not a failure.
#define BOOST_TEST_MODULE transport_ucp_peer
#include "other_process.h"

#include <ucp/api/ucp.h>

#include <boost/test/data/test_case.hpp>
#include <memory>

using namespace uct_test;

namespace {

struct Setting {
    const char *transport, *scheme;
};
std::ostream& operator<<(std::ostream& out, const Setting& s) { return out << s.transport << " " << s.scheme; }
const Setting kSettings[] = {
    {"mp_rc", "get_zcopy"}, {"mp_rc", "put_zcopy"}, {"mp_dc", "get_zcopy"}, {"mp_dc", "put_zcopy"}};
const auto each = boost::unit_test::data::make(kSettings);

constexpr std::size_t kLarge = 24 << 20;
constexpr ucp_tag_t kThere = 1, kBack = 2;

class Worker {
public:
    explicit Worker(const Setting& setting) {
        for (const auto& [name, value] : Options{{"TLS", setting.transport},
                                                 {"RNDV_SCHEME", setting.scheme},
                                                 {"RNDV_THRESH", "32k"},
                                                 {"KEEPALIVE_INTERVAL", "500ms"},
                                                 {"MP_PARTITION_TIMEOUT", "1s"},
                                                 {"MP_RC_TIMEOUT", "17ms"},
                                                 {"MP_DC_TIMEOUT", "17ms"},
                                                 {"MP_RC_RETRY_COUNT", "3"},
                                                 {"MP_DC_RETRY_COUNT", "3"}})
            setenv((std::string("UCX_") + name).c_str(), value, 1); // ucp_config_modify() does not reach transports
        ucp_config_t* config = nullptr;
        BOOST_REQUIRE(ucp_config_read(nullptr, nullptr, &config) == UCS_OK);
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA;
        BOOST_REQUIRE(ucp_init(&params, config, &context_) == UCS_OK);
        ucp_config_release(config);
        ucp_worker_params_t worker_params{};
        worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
        BOOST_REQUIRE(ucp_worker_create(context_, &worker_params, &worker) == UCS_OK);
        BOOST_REQUIRE(ucp_worker_get_address(worker, &address, &address_length) == UCS_OK);
    }
    ~Worker() {
        ucp_worker_release_address(worker, address);
        ucp_worker_destroy(worker);
        ucp_cleanup(context_);
    }
    Worker(const Worker&) = delete;
    [[nodiscard]] ucp_ep_h connect(const void* to) {
        ucp_ep_params_t params{};
        params.field_mask =
            UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.address = static_cast<const ucp_address_t*>(to);
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler.cb = [](void* arg, ucp_ep_h, ucs_status_t status) {
            static_cast<Worker*>(arg)->errors.push_back(status);
        };
        params.err_handler.arg = this;
        ucp_ep_h ep = nullptr;
        BOOST_REQUIRE(ucp_ep_create(worker, &params, &ep) == UCS_OK);
        return ep;
    }
    [[nodiscard]] ucs_status_ptr_t send(ucp_ep_h ep, const void* data, std::size_t size, ucp_tag_t tag) {
        const ucp_request_param_t param{};
        return ucp_tag_send_nbx(ep, data, size, tag, &param);
    }
    [[nodiscard]] ucs_status_ptr_t receive(void* data, std::size_t size, ucp_tag_t tag) {
        const ucp_request_param_t param{};
        return ucp_tag_recv_nbx(worker, data, size, tag, ~ucp_tag_t{0}, &param);
    }
    bool until(const std::function<bool()>& condition, double seconds = 30) {
        const double end = Domain::now() + seconds;
        while (!condition()) {
            ucp_worker_progress(worker);
            if (Domain::now() > end) return false;
        }
        return true;
    }
    // Its end; UCS_INPROGRESS: none within the time.
    ucs_status_t finish(ucs_status_ptr_t request) {
        if (!UCS_PTR_IS_PTR(request)) return UCS_PTR_STATUS(request);
        const bool done = until([&] { return ucp_request_check_status(request) != UCS_INPROGRESS; });
        const ucs_status_t status = done ? ucp_request_check_status(request) : UCS_INPROGRESS;
        ucp_request_free(request);
        return status;
    }
    void close(ucp_ep_h ep, unsigned flags) {
        ucp_request_param_t param{};
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = flags;
        BOOST_TEST(finish(ucp_ep_close_nbx(ep, &param)) != UCS_INPROGRESS);
        // UCX 1.13 fails an assertion of its own if a worker is destroyed while it still discards what a forced close
        // has left: the cancelled operations' completions come with progress.
        (void)until([] { return false; }, 0.1);
    }

    ucp_worker_h worker = nullptr;
    ucp_address_t* address = nullptr;
    std::size_t address_length = 0;
    std::vector<ucs_status_t> errors;

private:
    ucp_context_h context_ = nullptr;
};

// The other side sends and receives large messages without end, and may be stopped or killed.
struct Card {
    std::uint8_t address[512];
};

} // namespace

BOOST_AUTO_TEST_CASE(other_side, *boost::unit_test::disabled()) {
    const int fd = std::atoi(std::getenv("UCT_TEST_SOCKET"));
    const std::string transport = std::getenv("UCT_TEST_TRANSPORT");
    const std::size_t space = transport.find(' ');
    const std::string name = transport.substr(0, space), scheme = transport.substr(space + 1);
    Worker self({name.c_str(), scheme.c_str()});
    Hello hello{};
    BOOST_REQUIRE(send_all(fd, &hello, sizeof hello));
    Card mine{}, theirs{};
    BOOST_REQUIRE(self.address_length <= sizeof mine.address);
    std::memcpy(mine.address, self.address, self.address_length);
    BOOST_REQUIRE(send_all(fd, &mine, sizeof mine));
    if (!receive_all(fd, &theirs, sizeof theirs)) return;
    const ucp_ep_h ep = self.connect(theirs.address);
    std::vector<char> in(kLarge), out(kLarge, 'b');
    ucs_status_ptr_t receiving = self.receive(in.data(), in.size(), kThere);
    ucs_status_ptr_t sending = self.send(ep, out.data(), out.size(), kBack);
    for (;;) {
        char byte;
        if (::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) return _exit(0); // the test is over
        ucp_worker_progress(self.worker);
        const auto again = [&](ucs_status_ptr_t& request, const auto& start) {
            if (request && ucp_request_check_status(request) == UCS_INPROGRESS) return;
            if (request) ucp_request_free(request);
            request = start();
        };
        again(receiving, [&] { return self.receive(in.data(), in.size(), kThere); });
        again(sending, [&] { return self.send(ep, out.data(), out.size(), kBack); });
    }
}

namespace {

struct Pair {
    Worker self;
    Other other;
    ucp_ep_h ep = nullptr;
    explicit Pair(const Setting& setting)
        : self(setting), other((std::string(setting.transport) + " " + setting.scheme).c_str()) {
        Card theirs{}, mine{};
        other.get(&theirs, sizeof theirs);
        std::memcpy(mine.address, self.address, self.address_length);
        other.put(&mine, sizeof mine);
        ep = self.connect(theirs.address);
    }
};

} // namespace

BOOST_DATA_TEST_CASE(killed_in_a_rendezvous, each, setting) {
    for (int round = 0; round < 5; ++round) {
        Pair pair(setting);
        auto out = std::make_unique<std::vector<char>>(kLarge, 'a'), in = std::make_unique<std::vector<char>>(kLarge);
        // One exchange that works.
        ucs_status_ptr_t receiving = pair.self.receive(in->data(), in->size(), kBack);
        BOOST_REQUIRE(pair.self.finish(pair.self.send(pair.ep, out->data(), out->size(), kThere)) == UCS_OK);
        BOOST_REQUIRE(pair.self.finish(receiving) == UCS_OK);
        BOOST_TEST((*in)[kLarge - 1] == 'b');
        // And one, or several, that do not.
        receiving = pair.self.receive(in->data(), in->size(), kBack);
        ucs_status_ptr_t sending = pair.self.send(pair.ep, out->data(), out->size(), kThere);
        (void)pair.self.until([] { return false; }, round * 0.003);
        pair.other.kill();
        BOOST_TEST(pair.self.until([&] { return !pair.self.errors.empty(); }));
        const ucs_status_t sent = pair.self.finish(sending);
        BOOST_TEST(sent != UCS_INPROGRESS);
        if (UCS_PTR_IS_PTR(receiving) && ucp_request_check_status(receiving) == UCS_INPROGRESS)
            ucp_request_cancel(pair.self.worker, receiving); // if nothing of the message had come, it waits for anyone
        BOOST_TEST(pair.self.finish(receiving) != UCS_INPROGRESS);
        out.reset(); // its keys are void
        in.reset();
        pair.self.close(pair.ep, UCP_EP_CLOSE_FLAG_FORCE);
        BOOST_TEST(pair.self.errors.size() == 1u);
    }
}

BOOST_DATA_TEST_CASE(stopped_in_a_rendezvous, each, setting) {
    Pair pair(setting);
    std::vector<char> out(kLarge, 'a'), in(kLarge);
    ucs_status_ptr_t receiving = pair.self.receive(in.data(), in.size(), kBack);
    ucs_status_ptr_t sending = pair.self.send(pair.ep, out.data(), out.size(), kThere);
    (void)pair.self.until([] { return false; }, 0.003);
    pair.other.signal(SIGSTOP);
    (void)pair.self.until([] { return false; }, 2.5);
    BOOST_TEST(pair.self.errors.empty());
    pair.other.signal(SIGCONT);
    BOOST_TEST(pair.self.finish(sending) == UCS_OK);
    BOOST_TEST(pair.self.finish(receiving) == UCS_OK);
    BOOST_TEST(in[kLarge / 2] == 'b');
    BOOST_TEST(pair.self.errors.empty());
    pair.self.close(pair.ep, UCP_EP_CLOSE_FLAG_FORCE);
}

BOOST_DATA_TEST_CASE(closed_by_force_while_the_peer_is_stopped, each, setting) {
    Pair pair(setting);
    std::vector<char> out(kLarge, 'a'), in(kLarge);
    BOOST_REQUIRE(pair.self.finish(pair.self.send(pair.ep, out.data(), out.size(), kThere)) == UCS_OK);
    pair.other.signal(SIGSTOP);
    ucs_status_ptr_t sending = pair.self.send(pair.ep, out.data(), out.size(), kThere);
    (void)pair.self.until([] { return false; }, 0.05);
    pair.self.close(pair.ep, UCP_EP_CLOSE_FLAG_FORCE);
    BOOST_TEST(pair.self.finish(sending) != UCS_INPROGRESS);
    pair.other.signal(SIGCONT);
    BOOST_TEST(pair.self.errors.empty());
}
