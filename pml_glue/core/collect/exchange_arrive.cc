// Incoming messages of an exchange, and its end in a group that is broken. Nothing is believed but who sends.
#include <algorithm>
#include <cstring>

#include "pml_glue/core/collect/exchange.h"
#include "pml_glue/core/collect/group.h"

namespace ucx_mp::glue {

bool Exchange::take(MessageKind kind, const std::byte* data, std::size_t length) {
    switch (kind) {
    case wire::kPair:
        return take_pair(data, length);
    case wire::kReady:
        return take_ready(data, length);
    case wire::kArrived:
        return take_arrived(data, length);
    default:
        return false;
    }
}

// A block that nobody has asked for has no convertor that stays: most are one message. A block that was asked for may
// come in pieces though we have told a key.
bool Exchange::take_pair(const std::byte* data, std::size_t length) {
    wire::PairHeader header;
    std::memcpy(&header, data, sizeof header);
    const std::uint64_t bytes = length - sizeof header;
    if (header.from >= in_.size() || bytes == 0 || header.offset > header.total || bytes > header.total - header.offset)
        return false;
    In& state = in_[header.from];
    if (state == In::over || state == In::unasked) return false;
    Block once, *block = &once;
    if (state == In::message)
        open(once, header.from, false);
    else
        block = block_of(header.from);
    if (state == In::message) once.moved = got_[header.from];
    const bool next = header.offset == block->moved;
    if (next) {
        if (header.total != block->wanted) operation_->error = MP_TRUNCATED;
        const std::uint64_t fit =
            header.offset < block->wanted ? std::min<std::uint64_t>(bytes, block->wanted - header.offset) : 0;
        const std::byte* const from = data + sizeof header;
        if (block->data.convertor && fit)
            group_.all_.hooks_.unpack(block->data.convertor, header.offset, from, fit);
        else if (fit)
            std::memcpy(static_cast<std::byte*>(block->data.buffer) + header.offset, from, fit);
        block->moved += bytes;
    }
    if (state == In::message) {
        got_[header.from] = once.moved;
        if (once.data.convertor) operation_->shown.close(&operation_->shown, header.from, once.data.convertor, false);
    }
    if (next && block->moved == header.total) end_in(header.from, block == &once ? nullptr : block);
    return next;
}

void Exchange::end_in(std::uint32_t rank, Block* block) {
    in_[rank] = In::over;
    --ins_left_;
    if (block) {
        close(*block, false);
        --ins_used_;
        look_again(); // another one may be asked for
    } else if (ins_left_ == 0) {
        look_again();
    }
}

bool Exchange::take_ready(const std::byte* data, std::size_t length) {
    wire::ReadyHeader header;
    std::memcpy(&header, data, sizeof header);
    const std::size_t key_bytes = header.key_bytes == wire::kKnownKey ? 0 : header.key_bytes;
    if (header.from >= out_.size() || out_[header.from] != Out::unasked || length != sizeof header + key_bytes ||
        header.process != group_.processes_[header.from] || group_.broken_)
        return false;
    out_[header.from] = Out::asked;
    questions_.add(group_.all_.store(wire::kReady, data, length));
    look_again();
    return true;
}

bool Exchange::take_arrived(const std::byte* data, std::size_t length) {
    wire::ArrivedHeader header;
    std::memcpy(&header, data, sizeof header);
    if (header.from >= in_.size() || length != sizeof header) return false;
    if (in_[header.from] != In::put && in_[header.from] != In::pieces) return false;
    Block* const block = block_of(header.from);
    if (header.ok && (in_[header.from] != In::put || block->moved)) return false;
    if (!header.ok)
        operation_->error = MP_FAILED;
    else if (header.bytes != block->wanted)
        operation_->error = MP_TRUNCATED;
    end_in(header.from, block);
    return true;
}

void Exchange::cancel(const wire::CancelHeader& header) {
    if (!group_.all_.cancel(questions_, header)) return;
    out_[header.from] = Out::over; // our block goes nowhere
    --outs_left_;
    operation_->error = MP_FAILED;
    look_again();
}

bool Exchange::wind_up() {
    Groups& all = group_.all_;
    all.forget(questions_);
    if (message_.used) close(message_, true);
    if (asking_) {
        close(*asking_, false);
        --ins_used_;
        asking_ = nullptr;
    }
    for (Block& block : outs_) {
        if (!block.used || block.outstanding) continue;
        if (!block.told) {
            const wire::ArrivedHeader answer{
                .name = operation_->name, .bytes = block.total, .from = group_.config_.rank, .ok = 0};
            all.tell(block.peer->process, wire::kArrived, &answer, sizeof answer);
        }
        close(block, true);
        --outs_used_;
    }
    for (Block& block : ins_) {
        if (!block.used) continue;
        if (in_[block.rank] != In::put || block.peer->failed) {
            close(block, false);
            in_[block.rank] = In::over;
            --ins_used_;
        } else if (!block.told) {
            const wire::CancelHeader question{
                .name = operation_->name, .process = all.engine_.process(), .from = group_.config_.rank};
            all.tell(block.peer->process, wire::kCancel, &question, sizeof question);
            block.told = true;
        }
    }
    return ins_used_ == 0 && outs_used_ == 0;
}

// Connects members that are not connected yet, to ask them.
void Exchange::waits_for(std::vector<Peer*>& peers) const {
    if (group_.stripes_ && !group_.broken_) group_.stripes_->waits_for(peers);
    for (std::uint32_t rank = 0; rank < in_.size(); ++rank) {
        const bool waits = group_.broken_ ? in_[rank] == In::put : in_[rank] != In::over || out_[rank] == Out::unasked;
        if (!waits) continue;
        if (Peer* const peer = group_.broken_ ? group_.members_[rank] : group_.member(rank)) peers.push_back(peer);
    }
}

} // namespace ucx_mp::glue
