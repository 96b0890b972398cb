// Two transports side by side in one process and one thread: tag latency of UCP, and message rate and latency under
// load of UCT. Both run in turns of some milliseconds; the figure is the median of the ratios of neighbouring turns, so
// that what else the machine does hits both alike. No second process, no wait for the scheduler: what is compared is
// software.
//
//     LD_PRELOAD=libuct_mp.so softhca run -- bench_ucx_pingpong
//
// Prints "name ours stock ratio"; times in ns, rates in messages per microsecond.
#include <ucp/api/ucp.h>
#include <ucs/config/types.h>
#include <valgrind/callgrind.h>

#include <algorithm>
#include <array>
#include <functional>

#include "perf/uct_pair.h"

using namespace ucx_mp::perf;

namespace {

double now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}
double median(std::vector<double> v) {
    std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
    return v[v.size() / 2];
}

// -- UCP

class UcpPair {
public:
    UcpPair(const char* transports, const char* devices) {
        ucp_config_t* config;
        must(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
        must(ucp_config_modify(config, "TLS", transports), "TLS");
        must(ucp_config_modify(config, "NET_DEVICES", devices), "NET_DEVICES");
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_TAG;
        must(ucp_init(&params, config, &context_), "ucp_init");
        ucp_config_release(config);
        for (auto& worker : workers_) {
            ucp_worker_params_t p{};
            p.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
            p.thread_mode = UCS_THREAD_MODE_SINGLE;
            must(ucp_worker_create(context_, &p, &worker), "ucp_worker_create");
        }
        for (int i = 0; i < 2; ++i) {
            ucp_address_t* address;
            std::size_t length;
            must(ucp_worker_get_address(workers_[1 - i], &address, &length), "ucp_worker_get_address");
            ucp_ep_params_t p{};
            p.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
            p.address = address;
            must(ucp_ep_create(workers_[i], &p, &eps_[i]), "ucp_ep_create");
            ucp_worker_release_address(workers_[1 - i], address);
        }
        exchange(100); // connects
    }
    // Round trips of `size_` bytes: one side at a time has something to do, as in two processes.
    void exchange(unsigned count) {
        for (unsigned i = 0; i < count; ++i) send(0, 1), send(1, 0);
    }

private:
    void send(int from, int to) {
        ucp_request_param_t param{};
        char in[8], out[8] = {};
        void* receive = ucp_tag_recv_nbx(workers_[to], in, sizeof in, 1, ~0ull, &param);
        void* sent = ucp_tag_send_nbx(eps_[from], out, sizeof out, 1, &param);
        while (UCS_PTR_IS_PTR(receive) && ucp_request_check_status(receive) == UCS_INPROGRESS) {
            ucp_worker_progress(workers_[to]);
            if (UCS_PTR_IS_PTR(sent) || ++idle_ % 64 == 0) ucp_worker_progress(workers_[from]);
        }
        while (UCS_PTR_IS_PTR(sent) && ucp_request_check_status(sent) == UCS_INPROGRESS)
            ucp_worker_progress(workers_[from]);
        if (UCS_PTR_IS_PTR(receive)) ucp_request_free(receive);
        if (UCS_PTR_IS_PTR(sent)) ucp_request_free(sent);
        if (UCS_PTR_IS_ERR(receive) || UCS_PTR_IS_ERR(sent)) must(UCS_ERR_IO_ERROR, "tag message");
    }
    ucp_context_h context_ = nullptr;
    ucp_worker_h workers_[2] = {};
    ucp_ep_h eps_[2] = {};
    unsigned idle_ = 0;
};

// -- UCT: one interface and its peers

class Star {
public:
    Star(const char* transport, const char* device, unsigned peers)
        : domain_(transport, device), hub_(domain_, transport, device) {
        for (unsigned i = 0; i < peers; ++i) {
            sides_.push_back(std::make_unique<Side>(domain_, transport, device));
            links_.push_back(std::make_unique<Link>(hub_, *sides_.back()));
            must(uct_iface_set_am_handler(sides_.back()->iface, 1, arrived, this, 0), "handler");
        }
        run(1000);
    }
    // `count` messages of 8 bytes to the peers in turn, everybody progresses; while `keep` each carries the time of its
    // post.
    void run(unsigned count) {
        const std::uint64_t end = received_ + count;
        for (unsigned posted = 0; received_ < end;) {
            for (unsigned k = 0; k < 16 && posted < count; ++k) {
                Link& link = *links_[turn_];
                const std::uint64_t stamp = keep ? static_cast<std::uint64_t>(now_ns()) : 0;
                if (uct_ep_am_short(link.ab, 1, stamp, nullptr, 0) != UCS_OK) break;
                turn_ = (turn_ + 1) % links_.size();
                ++posted;
            }
            for (auto& side : sides_) uct_worker_progress(side->worker);
            uct_worker_progress(hub_.worker);
        }
    }
    std::vector<double> latencies; // kept while `keep`
    bool keep = false;

private:
    static ucs_status_t arrived(void* self, void* data, std::size_t, unsigned) {
        Star& star = *static_cast<Star*>(self);
        ++star.received_;
        if (star.keep) {
            std::uint64_t stamp;
            std::memcpy(&stamp, data, sizeof stamp);
            star.latencies.push_back(now_ns() - static_cast<double>(stamp));
        }
        return UCS_OK;
    }
    Domain domain_;
    Side hub_;
    std::vector<std::unique_ptr<Side>> sides_;
    std::vector<std::unique_ptr<Link>> links_;
    std::size_t turn_ = 0;
    std::uint64_t received_ = 0;
};

struct Timed {
    double ours, stock, ratio;
};
// Both in turns; ns per unit of each, and the median ratio.
Timed compare(unsigned turns, unsigned units, const std::function<void(unsigned)>& ours,
              const std::function<void(unsigned)>& stock) {
    std::vector<double> a, b, ratio;
    for (unsigned i = 0; i < turns; ++i) {
        double t[2];
        for (int k = 0; k < 2; ++k) {
            const bool first = (i % 2 == 0) == (k == 0);
            const double begin = now_ns();
            (first ? ours : stock)(units);
            t[first ? 0 : 1] = (now_ns() - begin) / units;
        }
        a.push_back(t[0]);
        b.push_back(t[1]);
        ratio.push_back(t[0] / t[1]);
    }
    return {median(a), median(b), median(ratio)};
}

double quantile(std::vector<double>& v, double q) {
    const auto k = static_cast<std::ptrdiff_t>(q * static_cast<double>(v.size() - 1));
    std::nth_element(v.begin(), v.begin() + k, v.end());
    return v[static_cast<std::size_t>(k)];
}

} // namespace

int main(int argc, char** argv) {
    const unsigned turns = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 401;
    if (argc > 4) { // bench_ucx_pingpong TURNS TRANSPORT DEVICE PEERS: one of them alone, for a profiler
        Star star(argv[2], argv[3], static_cast<unsigned>(std::atoi(argv[4])));
        star.run(4000);
        CALLGRIND_TOGGLE_COLLECT; // counts from here if it was started with --collect-atstart=no
        for (unsigned i = 0; i < turns; ++i) star.run(4000);
        CALLGRIND_TOGGLE_COLLECT;
        std::_Exit(0);
    }
    // ... TURNS PEERS TRANSPORT: this row alone (0: all), with this transport in place of mp_rc
    const unsigned only = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 0;
    const char* const transport = argc > 3 ? argv[3] : "mp_rc";
    if (!only) {
        UcpPair ours(transport, "all"),
            stock("rc_v", "softhca_0:1"); // the alias brings its auxiliary transport, ud_verbs, along
        const auto t = compare(
            turns, 2000, [&](unsigned n) { ours.exchange(n); }, [&](unsigned n) { stock.exchange(n); });
        std::printf("ucp_tag_latency_8 %.1f %.1f %.4f\n", t.ours / 2, t.stock / 2, t.ratio);
        std::fflush(stdout);
    }
    for (const unsigned peers : {1u, 2u, 8u}) {
        if (only && peers != only) continue;
        Star ours(transport, "mp0", peers), stock("rc_verbs", "softhca_0:1", peers);
        const auto t = compare(
            turns, 4000, [&](unsigned n) { ours.run(n); }, [&](unsigned n) { stock.run(n); });
        std::printf("message_rate_8_peers_%u %.3f %.3f %.4f\n", peers, 1e3 / t.ours, 1e3 / t.stock, 1 / t.ratio);
        // Latency under load, in the same turns: quantiles of each turn, median ratio over turns.
        std::vector<double> p50, p99, a, b;
        for (unsigned i = 0; i < turns; ++i) {
            for (Star* star : {&ours, &stock}) {
                star->latencies.clear();
                star->keep = true;
                star->run(4000);
                star->keep = false;
            }
            a.push_back(quantile(ours.latencies, 0.99));
            b.push_back(quantile(stock.latencies, 0.99));
            p99.push_back(a.back() / b.back());
            p50.push_back(quantile(ours.latencies, 0.5) / quantile(stock.latencies, 0.5));
        }
        std::printf("latency_p99_peers_%u %.1f %.1f %.4f\n", peers, median(a), median(b), median(p99));
        std::printf("latency_p50_peers_%u 0 0 %.4f\n", peers, median(p50));
        std::fflush(stdout);
    }
    std::_Exit(0);
}
