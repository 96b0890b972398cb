#include "uct_mp/ucx/check/side.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

namespace ucx_mp::check {

namespace {

constexpr unsigned kReceives = 16, kReceiveBytes = 64, kLargestLane = 64;
constexpr auto kPatience = std::chrono::seconds(5);
constexpr std::uint64_t kTargetKey = 0x6d702d636865636b;

template <class Condition> bool within(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    for (unsigned i = 0; !condition(); ++i) {
        if (std::chrono::steady_clock::now() > end) return false;
        if (i % 1024 == 1023) sched_yield();
    }
    return true;
}

CompletionQueueEx make_sends(const verbs::Device& device, bool& stamped) {
    ibv_cq_init_attr_ex init{};
    init.cqe = 256;
    init.wc_flags = device.has_timestamps ? IBV_WC_EX_WITH_COMPLETION_TIMESTAMP : 0;
    ibv_cq_ex* cq = ibv_create_cq_ex(device.context.get(), &init);
    stamped = cq && device.has_timestamps;
    return {cq, [](ibv_cq_ex* p) { (void)ibv_destroy_cq(ibv_cq_ex_to_cq(p)); }};
}

} // namespace

verbs::RemoteEnd remote_of(const End& end) {
    verbs::RemoteEnd out;
    out.dlid = end.lid;
    out.source_path_bits = end.path_bits;
    out.mtu = static_cast<ibv_mtu>(end.mtu);
    out.qp_number = end.number;
    out.rq_psn = end.psn;
    std::memcpy(out.gid.data(), end.gid, sizeof end.gid);
    return out;
}

bool Side::open(const std::vector<std::string>& rails, std::string& error) {
    if (failed(verbs::DeviceSet::open({rails}, devices_, error))) return false;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, kMemory)));
    if (!memory_) return error = "no memory", false;
    std::memset(memory_.get(), 0, kMemory);
    constexpr int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    if (!failed(verbs::register_memory(devices_, memory_.get(), kMemory, access, keys_))) return true;
    error = std::string("memory cannot be registered: ") + std::strerror(errno);
    return false;
}

void Side::describe(Message& answer) const {
    answer.count = static_cast<std::uint16_t>(rails().size());
    answer.memory = reinterpret_cast<std::uint64_t>(memory_.get());
    std::copy_n(keys_.rkey.begin(), verbs::kMaxDevices, answer.rkey);
    for (const verbs::Rail& rail : rails()) {
        RailFacts& facts = answer.rails[rail.index];
        facts.subnet = rail.subnet_prefix;
        facts.device = static_cast<std::uint8_t>(rail.device);
        facts.active = rail.active;
        facts.ethernet = rail.ethernet;
        facts.lmc = rail.lmc;
        facts.lid = rail.lid;
        facts.mtu = static_cast<std::uint8_t>(rail.mtu);
        facts.roce_2 = rail.roce_2;
        std::memcpy(facts.gid, rail.gid.data(), sizeof facts.gid);
        std::snprintf(facts.name, sizeof facts.name, "%s", rail.name.c_str());
    }
}

bool Side::post_receive(Lane& lane) {
    ibv_sge sge{reinterpret_cast<std::uint64_t>(memory_.get() + kInbox), kReceiveBytes, keys_.lkey[lane.device->index]};
    ibv_recv_wr wr{}, *bad;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    return ibv_post_srq_recv(lane.srq.get(), &wr, &bad) == 0;
}

Lane* Side::add_lane(unsigned rail, std::string& error) {
    if (rail >= rails().size() || lanes_.size() >= kLargestLane) return error = "no such rail", nullptr;
    auto lane = std::make_unique<Lane>();
    lane->rail = &rails()[rail];
    lane->device = &devices_.device_of(*lane->rail);
    lane->local_rail = rail;
    lane->psn = 0xfffff0 + rail; // wraps soon
    const auto trouble = [&](const char* what) {
        error = lane->rail->name + ": " + what + ": " + std::strerror(errno);
        return nullptr;
    };
    lane->sends = make_sends(*lane->device, lane->stamped);
    lane->receives.reset(ibv_create_cq(lane->device->context.get(), 256, nullptr, nullptr, 0));
    if (!lane->sends || !lane->receives) return trouble("ibv_create_cq");
    ibv_srq_init_attr init{};
    init.attr = {.max_wr = 2 * kReceives, .max_sge = 1, .srq_limit = 0};
    lane->srq.reset(ibv_create_srq(lane->device->pd.get(), &init));
    if (!lane->srq) return trouble("ibv_create_srq (the transport needs shared receive queues)");
    const verbs::Queues queues{ibv_cq_ex_to_cq(lane->sends.get()), lane->receives.get(), lane->srq.get()};
    for (verbs::QueuePair& qp : lane->qp) {
        qp = verbs::create_rc(*lane->device, *lane->rail, queues, {.send_wr = 64, .send_sge = 1, .inline_bytes = 256},
                              &lane->granted_inline);
        if (!qp) return trouble("ibv_create_qp");
    }
    for (unsigned i = 0; i < kReceives; ++i)
        if (!post_receive(*lane)) return trouble("ibv_post_srq_recv");
    lanes_.push_back(std::move(lane));
    return lanes_.back().get();
}

void Side::ends(const Lane& lane, End* out) const {
    for (unsigned i = 0; i < kQueuePairs; ++i) {
        out[i] = {.number = lane.qp[i]->qp_num,
                  .psn = lane.psn,
                  .lid = lane.rail->lid,
                  .mtu = static_cast<std::uint8_t>(lane.rail->mtu),
                  .path_bits = 0,
                  .gid = {}};
        std::memcpy(out[i].gid, lane.rail->gid.data(), sizeof out[i].gid);
    }
}

int Side::join(Lane& lane, const End* remote) {
    verbs::Reliability reliability;
    reliability.max_rd_atomic = static_cast<std::uint8_t>(std::min(lane.device->max_rd_atomic, 4u));
    for (unsigned i = 0; i < kQueuePairs; ++i) {
        lane.remote[i] = remote[i];
        if (const int error =
                verbs::connect_rc(lane.qp[i].get(), *lane.rail, remote_of(remote[i]), reliability, lane.psn))
            return error;
    }
    return 0;
}

bool Side::serve(const Stream& stream) {
    for (Message question; stream.receive(question, 120);) {
        Message reply;
        reply.ask = question.ask;
        if (question.ask == Ask::end) return true;
        answer(question, stream, reply);
        if (!stream.send(reply)) return false;
    }
    return false;
}

void Side::answer(const Message& question, const Stream& stream, Message& reply) {
    const bool needs_lane = question.ask != Ask::rails && question.ask != Ask::lane;
    if (needs_lane && (question.lane >= lanes_.size() || question.queue_pair >= kQueuePairs)) {
        reply.error = EINVAL;
        return;
    }
    Lane* lane = needs_lane ? lanes_[question.lane].get() : nullptr;
    ibv_qp* qp = lane ? lane->qp[question.queue_pair].get() : nullptr;
    switch (question.ask) {
    case Ask::rails:
        describe(reply);
        break;
    case Ask::lane: {
        std::string error;
        lane = add_lane(question.rail, error);
        if (!lane) {
            reply.error = errno ? errno : EINVAL;
            break;
        }
        reply.error = join(*lane, question.ends);
        reply.lane = static_cast<std::uint16_t>(lanes_.size() - 1);
        ends(*lane, reply.ends);
        break;
    }
    case Ask::query: {
        verbs::QueuePairTruth truth{};
        reply.error = verbs::query(qp, truth);
        reply.value = truth.rq_psn;
        break;
    }
    case Ask::fail:
        reply.error = verbs::to_error(qp);
        break;
    case Ask::message:
    case Ask::last_word:
        if (question.length % 8 || question.offset % 8 || question.offset > kInbox ||
            question.length > kInbox - question.offset || question.length == 0) {
            reply.error = EINVAL;
            break;
        }
        if (!stream.send(reply)) break; // armed
        if (question.ask == Ask::message)
            await_message(question, reply);
        else
            await_last_word(question, reply);
        break;
    case Ask::alternate: {
        const verbs::Rail& rail = rails()[std::min<std::size_t>(question.rail, rails().size() - 1)];
        reply.error = verbs::load_alternate(qp, rail, remote_of(question.ends[0]), {});
        break;
    }
    case Ask::migration: {
        ibv_qp_attr a{};
        ibv_qp_init_attr init{};
        reply.error = ibv_query_qp(qp, &a, IBV_QP_PATH_MIG_STATE, &init);
        reply.value = a.path_mig_state;
        lane->device->events->read();
        reply.length = lane->device->events->migrations();
        break;
    }
    case Ask::target:
        lane->target =
            verbs::create_dct(*lane->device, *lane->rail, lane->receives.get(), lane->srq.get(), kTargetKey, {});
        reply.error = lane->target ? 0 : errno;
        reply.number = lane->target ? lane->target->qp_num : 0;
        reply.key = kTargetKey;
        break;
    case Ask::end:
        break;
    }
}

void Side::await_message(const Message& question, Message& reply) {
    Lane& lane = *lanes_[question.lane];
    ibv_wc wc{};
    const volatile std::uint64_t& word = *reinterpret_cast<std::uint64_t*>(memory_.get() + question.offset);
    if (!within([&] { return ibv_poll_cq(lane.receives.get(), 1, &wc) == 1; })) {
        reply.error = ETIMEDOUT;
        return;
    }
    reply.value = word == question.value;
    if (wc.status != IBV_WC_SUCCESS || !post_receive(lane)) reply.error = EIO;
}

void Side::await_last_word(const Message& question, Message& reply) {
    const auto* words = reinterpret_cast<const volatile std::uint64_t*>(memory_.get() + question.offset);
    const std::size_t count = question.length / 8;
    if (!within([&] { return words[count - 1] == question.value; })) {
        reply.error = ETIMEDOUT;
        return;
    }
    reply.value = 1;
    for (std::size_t i = count; i-- > 0;) // the latest first
        if (words[i] != question.value) reply.value = 0;
}

} // namespace ucx_mp::check
