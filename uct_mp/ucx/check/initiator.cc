#include "uct_mp/ucx/check/initiator.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace ucx_mp::check {

namespace {
constexpr std::size_t kReadTo = kInbox + 4096; // offset in our memory
constexpr auto kPatience = std::chrono::seconds(5);

bool partners(const verbs::Rail& ours, const RailFacts& theirs) {
    if (!ours.active || !theirs.active || ours.ethernet != (theirs.ethernet != 0)) return false;
    return ours.ethernet ? ours.roce_2 == (theirs.roce_2 != 0) : ours.subnet_prefix == theirs.subnet;
}
} // namespace

Initiator::~Initiator() {
    if (stream_.good()) (void)stream_.send(Message{});
}

bool Initiator::ask(Ask what, unsigned lane, unsigned queue_pair, Message& answer, Message question) {
    question.ask = what;
    question.lane = static_cast<std::uint16_t>(lane);
    question.queue_pair = static_cast<std::uint16_t>(queue_pair);
    if (stream_.send(question) && stream_.receive(answer) && answer.ask == what) return true;
    trouble_ = "the other end does not answer, or is of another version";
    return false;
}

bool Initiator::armed(Ask what, unsigned lane, Message question) {
    Message answer;
    if (!ask(what, lane, 0, answer, question)) return false;
    if (answer.error == 0) return true;
    trouble_ = std::string("the other end: ") + std::strerror(answer.error);
    return false;
}

bool Initiator::found(std::uint64_t& value) {
    Message answer;
    if (!stream_.receive(answer)) {
        trouble_ = "the other end does not answer";
        return false;
    }
    value = answer.value;
    if (answer.error == 0) return true;
    trouble_ = std::string("the other end: ") + std::strerror(answer.error);
    return false;
}

bool Initiator::open(std::string& error) {
    if (!ask(Ask::rails, 0, 0, facts_)) return error = trouble_, false;
    facts_.count = std::min<std::uint16_t>(facts_.count, verbs::kMaxRails);
    // One lane per pair of adapters that can talk; a port with itself first, then the others of its subnet.
    std::uint64_t done = 0;
    for (const verbs::Rail& rail : side_.rails())
        for (unsigned first = 0; first < 2; ++first)
            for (unsigned r = 0; r < facts_.count; ++r) {
                const RailFacts& theirs = facts_.rails[r];
                if (theirs.device >= verbs::kMaxDevices || !partners(rail, theirs) || (first == 0) != (r == rail.index))
                    continue;
                const std::uint64_t pair = std::uint64_t{1} << (8 * rail.device + theirs.device);
                if (done & pair) continue;
                Lane* lane = side_.add_lane(rail.index, error);
                if (!lane) return false;
                lane->remote_rail = r;
                lane->remote_device = theirs.device;
                Message question, answer;
                question.rail = static_cast<std::uint16_t>(r);
                side_.ends(*lane, question.ends);
                if (!ask(Ask::lane, 0, 0, answer, question)) return error = trouble_, false;
                int code = answer.error ? answer.error : side_.join(*lane, answer.ends);
                if (answer.lane != lanes().size() - 1) code = EPROTO;
                if (code) {
                    error = rail.name + " -> " + std::string(theirs.name, strnlen(theirs.name, sizeof theirs.name)) +
                            ": cannot be connected: " + std::strerror(code);
                    return false;
                }
                done |= pair;
            }
    if (lanes().empty()) error = "no active port here and there in one subnet";
    return !lanes().empty();
}

unsigned Initiator::index(const Lane& lane) const {
    unsigned i = 0;
    while (side_.lanes()[i].get() != &lane) ++i;
    return i;
}

bool Initiator::post(Lane& lane, unsigned queue_pair, ibv_wr_opcode op, std::size_t offset, std::size_t length) {
    ibv_sge sge{};
    sge.addr = reinterpret_cast<std::uint64_t>(side_.memory() + (op == IBV_WR_RDMA_READ ? kReadTo : offset));
    sge.length = static_cast<std::uint32_t>(length);
    sge.lkey = side_.keys().lkey[lane.device->index];
    ibv_send_wr wr{}, *bad;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = op;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = facts_.memory + offset;
    wr.wr.rdma.rkey = facts_.rkey[lane.remote_device];
    if (const int error = ibv_post_send(lane.qp[queue_pair].get(), &wr, &bad)) {
        trouble_ = std::string("ibv_post_send: ") + std::strerror(error > 0 ? error : errno);
        return false;
    }
    return wait(lane);
}

bool Initiator::wait(Lane& lane) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    ibv_poll_cq_attr attr{};
    for (unsigned i = 0;; ++i) {
        const int error = ibv_start_poll(lane.sends.get(), &attr);
        if (error == 0) break;
        if (error != ENOENT || std::chrono::steady_clock::now() > end) {
            trouble_ = error == ENOENT ? "no completion" : std::string("ibv_start_poll: ") + std::strerror(error);
            return false;
        }
        if (i % 1024 == 1023) sched_yield();
    }
    const ibv_wc_status status = lane.sends->status;
    if (lane.stamped && status == IBV_WC_SUCCESS) stamp = ibv_wc_read_completion_ts(lane.sends.get());
    ibv_end_poll(lane.sends.get());
    if (status == IBV_WC_SUCCESS) return true;
    trouble_ = std::string("completion: ") + ibv_wc_status_str(status);
    return false;
}

bool Initiator::write(Lane& lane, unsigned queue_pair, std::uint64_t value, std::size_t offset, std::size_t length) {
    std::fill_n(reinterpret_cast<std::uint64_t*>(side_.memory() + offset), length / 8, value);
    return post(lane, queue_pair, IBV_WR_RDMA_WRITE, offset, length);
}

bool Initiator::read(Lane& lane, unsigned queue_pair, std::size_t offset, std::uint64_t& value) {
    std::memset(side_.memory() + kReadTo, 0, 8);
    if (!post(lane, queue_pair, IBV_WR_RDMA_READ, offset, 8)) return false;
    std::memcpy(&value, side_.memory() + kReadTo, 8);
    return true;
}

bool Initiator::send(Lane& lane, unsigned queue_pair) { return post(lane, queue_pair, IBV_WR_SEND, 0, 8); }

} // namespace ucx_mp::check
