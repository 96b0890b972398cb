#include "uct_mp/link/ring_costs.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include "uct_mp/verbs/memory.h"
#include "uct_mp/verbs/queue_pair.h"

namespace ucx_mp::link {

namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kBatch = 16;      // messages in a round
constexpr unsigned kRounds = 64;     // the quicker half of them counts: others may have been interrupted
constexpr unsigned kLooks = 1024;    // in vain, in a round
constexpr std::uint32_t kBytes = 32; // of a message: 8 bytes and a header
constexpr std::uint64_t kKey = 0x0123456789abcdef;
constexpr std::uint32_t kPsn[2] = {0x1234, 0x5678};

class Bench {
public:
    Bench(const verbs::DeviceSet& devices, const verbs::Rail& rail, const RingShape& shape,
          const std::atomic<bool>* stop)
        : device_(devices.device_of(rail)), rail_(rail), shape_(shape), stop_(stop) {}

    bool run(RingCosts& out) {
        if (!open()) return false;
        std::vector<double> posted, completed, received, written, looked, missed;
        for (unsigned round = 0; round < kRounds; ++round) {
            double post = 0, complete = 0, receive = 0, look = 0;
            if (!by_queue(post, complete, receive) || !by_ring(look)) return false;
            posted.push_back(post);
            completed.push_back(complete);
            received.push_back(receive);
            looked.push_back(look);
            missed.push_back(miss());
        }
        const double receive = typical(received);
        out.saved = std::max(0.0, receive - typical(looked));
        out.miss = typical(missed);
        out.credit = typical(posted) + typical(completed) + receive;
        out.make = 2 * out.credit;
        return true;
    }

private:
    static double typical(std::vector<double>& of) {
        const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 4);
        std::nth_element(of.begin(), middle, of.end());
        return *middle;
    }
    // ns for each of `count`.
    static double time(unsigned count, const std::function<void()>& what) {
        const auto began = Clock::now();
        what();
        return std::chrono::duration<double, std::nano>(Clock::now() - began).count() / count;
    }

    bool open() {
        if (!rail_.active || shape_.slots == 0 || shape_.longest() < kBytes) return false;
        constexpr std::size_t kPage = 4096;
        const std::size_t ring = (shape_.bytes() + kPage - 1) & ~(kPage - 1);
        bytes_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, ring + 2 * kPage)));
        if (!bytes_) return false;
        region_.reset(ibv_reg_mr(device_.pd.get(), bytes_.get(), ring + 2 * kPage,
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
        inbox_ = bytes_.get() + ring;
        outbox_ = inbox_ + kPage;
        clear_ring(bytes_.get(), shape_, kKey);
        sends_.reset(ibv_create_cq(device_.context.get(), 2 * kBatch, nullptr, nullptr, 0));
        receives_.reset(ibv_create_cq(device_.context.get(), 2 * kBatch, nullptr, nullptr, 0));
        ibv_srq_init_attr attr{};
        attr.attr = {.max_wr = 2 * kBatch, .max_sge = 1, .srq_limit = 0};
        srq_.reset(ibv_create_srq(device_.pd.get(), &attr));
        if (!region_ || !sends_ || !receives_ || !srq_) return false;
        for (verbs::QueuePair& one : pair_) {
            one = verbs::create_rc(device_, rail_, {sends_.get(), receives_.get(), srq_.get()}, {2 * kBatch, 1, 0},
                                   nullptr);
            if (!one) return false;
        }
        for (unsigned i = 0; i < 2; ++i) {
            const verbs::RemoteEnd other{rail_.lid, 0, rail_.mtu, pair_[1 - i]->qp_num, kPsn[1 - i], rail_.gid};
            if (verbs::connect_rc(pair_[i].get(), rail_, other, {}, kPsn[i]) != 0) return false;
        }
        return post_receives(kBatch);
    }

    bool post_receives(unsigned count) {
        ibv_recv_wr wr[kBatch]{};
        ibv_sge sge[kBatch]{};
        for (unsigned i = 0; i < count; ++i) {
            sge[i] = {reinterpret_cast<std::uintptr_t>(inbox_ + std::size_t{i} * 128), 128, region_->lkey};
            wr[i].sg_list = &sge[i];
            wr[i].num_sge = 1;
            wr[i].next = i + 1 < count ? &wr[i + 1] : nullptr;
        }
        ibv_recv_wr* bad = nullptr;
        return ibv_post_srq_recv(srq_.get(), wr, &bad) == 0;
    }

    // Until all are acknowledged: their effects are there then.
    bool wait(ibv_cq* cq, unsigned count) {
        for (unsigned done = 0; done < count;) {
            ibv_wc wc;
            const int n = ibv_poll_cq(cq, 1, &wc);
            if (n < 0 || (n > 0 && wc.status != IBV_WC_SUCCESS) || Clock::now() > end_) return false;
            if (stop_ && stop_->load(std::memory_order_relaxed)) return false;
            done += static_cast<unsigned>(n);
        }
        return true;
    }

    bool post(ibv_wr_opcode opcode, std::uint32_t at, std::uint32_t length, std::uint64_t to) {
        ibv_sge sge{reinterpret_cast<std::uintptr_t>(outbox_ + at), length, region_->lkey};
        ibv_send_wr wr{}, *bad = nullptr;
        wr.opcode = opcode;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.wr.rdma.remote_addr = to;
        wr.wr.rdma.rkey = region_->rkey;
        return ibv_post_send(pair_[0].get(), &wr, &bad) == 0;
    }

    bool by_queue(double& posting, double& completing, double& receiving) {
        bool good = true;
        posting = time(kBatch, [&] {
            for (unsigned i = 0; i < kBatch; ++i) good &= post(IBV_WR_SEND, 0, kBytes, 0);
        });
        if (!good || !wait(sends_.get(), kBatch - 1)) return false;
        completing = time(1, [&] { good = wait(sends_.get(), 1); });
        receiving = time(kBatch, [&] { good = good && wait(receives_.get(), kBatch) && post_receives(kBatch); });
        return good;
    }

    bool by_ring(double& looking) {
        const unsigned count = std::min<unsigned>(kBatch, shape_.slots);
        bool good = true;
        for (unsigned i = 0; i < count; ++i, ++sent_) {
            std::byte* const message = outbox_ + std::size_t{i} * 128;
            const std::uint32_t length = seal_ring_message(message, kBytes, sent_, kKey);
            good &= post(IBV_WR_RDMA_WRITE, i * 128, length,
                         reinterpret_cast<std::uintptr_t>(bytes_.get()) + shape_.end_of(sent_) - length);
        }
        if (!good || !wait(sends_.get(), count)) return false;
        std::byte* message = nullptr;
        std::uint32_t length = 0;
        looking = time(count, [&] {
            for (unsigned i = 0; i < count; ++i, ++expected_)
                good &= look_into_ring(bytes_.get(), shape_, kKey, expected_, kBytes, message, length) ==
                        RingEntry::message;
        });
        return good;
    }

    double miss() {
        std::byte* message = nullptr;
        std::uint32_t length = 0;
        unsigned found = 0;
        const double took = time(kLooks, [&] {
            for (unsigned i = 0; i < kLooks; ++i)
                found += look_into_ring(bytes_.get(), shape_, kKey, expected_ + i % shape_.slots, kBytes, message,
                                        length) != RingEntry::none;
        });
        return found ? 0 : took;
    }

    const verbs::Device& device_;
    const verbs::Rail& rail_;
    const RingShape shape_;
    const std::atomic<bool>* const stop_;
    const Clock::time_point end_ = Clock::now() + std::chrono::seconds(1);
    std::unique_ptr<std::byte, void (*)(void*)> bytes_{nullptr, std::free};
    std::byte *inbox_ = nullptr, *outbox_ = nullptr;
    verbs::MemoryRegion region_;
    verbs::CompletionQueue sends_, receives_;
    verbs::SharedReceiveQueue srq_;
    verbs::QueuePair pair_[2];
    std::uint32_t sent_ = 0, expected_ = 0;
};

} // namespace

bool measure_ring_costs(const verbs::DeviceSet& devices, const verbs::Rail& rail, const RingShape& shape,
                        RingCosts& out, const std::atomic<bool>* stop) {
    return Bench(devices, rail, shape, stop).run(out);
}

std::unique_ptr<RingCostTest> RingCostTest::begin(Services& services, const verbs::DeviceSet& devices,
                                                  const verbs::Rail& rail, const RingShape& shape) {
    auto shared = std::make_shared<Shared>();
    const bool taken = services.aside([shared, devices, rail, shape] {
        const bool good = measure_ring_costs(devices, rail, shape, shared->costs, &shared->stop);
        shared->state.store(good ? State::done : State::failed, std::memory_order_release);
    });
    if (!taken) return nullptr;
    return std::unique_ptr<RingCostTest>(new RingCostTest(std::move(shared)));
}

} // namespace ucx_mp::link
