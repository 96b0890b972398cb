#include "pml_glue/core/collect/exchange.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

#include "pml_glue/core/collect/group.h"

namespace ucx_mp::glue {

Exchange::Exchange(Group& group) : group_(group), ins_(group.config_.peers), outs_(group.config_.peers) {
    in_.resize(group.config_.ranks);
    out_.resize(group.config_.ranks);
    got_.resize(group.config_.ranks);
    for (std::vector<Block>* blocks : {&ins_, &outs_})
        for (Block& block : *blocks) {
            block.exchange = this;
            block.completion.done = wrote;
        }
    message_.exchange = this;
}

std::uint64_t Exchange::size(std::uint32_t rank, bool sends) const {
    return operation_->shown.size(&operation_->shown, rank, sends);
}

namespace {
bool same_key(Endpoint& endpoint, Memory* one, Memory* other) {
    std::byte keys[2][wire::kMaxKey] = {};
    return one == other || (endpoint.limits().key_bytes > 0 && endpoint.limits().key_bytes <= wire::kMaxKey &&
                            endpoint.pack_key(one, keys[0]) && endpoint.pack_key(other, keys[1]) &&
                            std::memcmp(keys[0], keys[1], sizeof keys[0]) == 0);
}
} // namespace

// The program may have unmapped memory since the start before, and mapped other pages there: adapters would still use
// the old ones. The port knows what it has registered: where that holds it gives the same once more.
void Group::renew_memory(GroupOperation& operation) {
    mp_collective_t& shown = operation.shown;
    for (std::uint32_t rank = 0; rank < kept_.size(); ++rank) {
        KeptBlock& kept = kept_[rank];
        for (Memory** its : {&kept.in, &kept.out}) {
            if (!*its) continue;
            const bool sends = its == &kept.out;
            Endpoint& endpoint = *members_[rank]->endpoint;
            const mp_data_t data = shown.open(&shown, rank, sends);
            Memory* spare = endpoint.register_memory(data.buffer, data.bytes);
            // Nobody has been told of what is only read here.
            if (!spare || sends || !same_key(endpoint, *its, spare)) {
                std::swap(*its, spare);
                if (!sends) kept.told = false;
            }
            if (spare) endpoint.deregister(spare);
        }
    }
}

void Exchange::begin(GroupOperation& operation) {
    operation_ = &operation;
    const std::uint32_t ranks = group_.config_.ranks;
    ins_left_ = outs_left_ = 0;
    std::fill(got_.begin(), got_.end(), 0);
    Stripes* const stripes = group_.stripes_.get();
    if (!group_.kept_.empty() && group_.all_.hooks_.unmapped)
        if (const std::uint64_t now = group_.all_.hooks_.unmapped(group_.all_.hooks_.argument);
            now != group_.unmapped_) {
            group_.unmapped_ = now;
            group_.renew_memory(operation);
            if (stripes) stripes->renew_memory();
        }
    if (stripes) stripes->begin(operation);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        in_[rank] = In::over;
        out_[rank] = Out::over;
        if (rank == group_.config_.rank) continue;
        const std::uint64_t in = size(rank, false), out = size(rank, true);
        if (stripes && in > group_.eager_ && out > group_.eager_ && stripes->put_block(rank)) continue;
        if (in) {
            ++ins_left_;
            in_[rank] = in <= group_.eager_ ? In::message : In::unasked;
        }
        if (out) {
            ++outs_left_;
            out_[rank] = out <= group_.eager_ ? Out::message : Out::unasked;
        }
    }
    next_message_ = next_ask_ = 1;
    // The progress thread cannot connect anybody.
    for (std::uint32_t rank = 0; rank < ranks && !group_.all_.in_thread(); ++rank)
        if (in_[rank] != In::over || out_[rank] != Out::over) (void)group_.member(rank);
}

bool Exchange::advance() {
    bool room = send_messages();
    room = ask() && room;
    room = serve() && room;
    const bool striped = !group_.stripes_ || group_.stripes_->advance();
    if (group_.broken_) return false; // listed
    if (!room || !striped) look_again();
    return ins_left_ == 0 && outs_left_ == 0 && striped;
}

void Exchange::look_again() {
    if (!operation_->listed) group_.all_.list(*operation_);
}

void Exchange::open(Block& block, std::uint32_t rank, bool sends) const {
    block.rank = rank;
    block.used = true;
    block.outstanding = block.pieces = block.fenced = block.failed = block.told = false;
    block.moved = 0;
    block.memory = nullptr;
    block.key = nullptr;
    block.data = operation_->shown.open(&operation_->shown, rank, sends);
    block.wanted = block.total = block.data.bytes;
    if (!block.data.buffer && !block.data.convertor) throw std::bad_alloc();
}

// Not while the port has its memory.
void Exchange::close(Block& block, bool sends) {
    Endpoint& endpoint = *block.peer->endpoint;
    if (group_.kept_.empty()) {
        if (block.memory) endpoint.deregister(block.memory);
        if (block.key) endpoint.release_key(block.key);
    }
    if (block.data.convertor) operation_->shown.close(&operation_->shown, block.rank, block.data.convertor, sends);
    block.used = false;
}

Exchange::Block& Exchange::unused(std::vector<Block>& blocks) const {
    return *std::find_if(blocks.begin(), blocks.end(), [](const Block& block) { return !block.used; });
}

Exchange::Block* Exchange::block_of(std::uint32_t rank) {
    const auto found =
        std::find_if(ins_.begin(), ins_.end(), [&](const Block& block) { return block.used && block.rank == rank; });
    return found == ins_.end() ? nullptr : &*found;
}

// False, here and below: to be called again, for lack of room or of a peer.
bool Exchange::send_messages() {
    const std::uint32_t ranks = group_.config_.ranks;
    for (; next_message_ < ranks; ++next_message_) {
        const std::uint32_t to = (group_.config_.rank + next_message_) % ranks;
        if (out_[to] != Out::message) continue;
        if (!message_.used) {
            Peer* const peer = group_.member(to);
            if (!peer) return false;
            message_.peer = peer;
            open(message_, to, true);
        }
        if (send_pieces(message_) != Posted::done) return false;
        close(message_, true);
        out_[to] = Out::over;
        --outs_left_;
    }
    return true;
}

std::size_t Exchange::pack_pair(void* out, void* argument) {
    Block& block = *static_cast<Block*>(argument);
    const Exchange& exchange = *block.exchange;
    const wire::PairHeader header{.name = exchange.operation_->name,
                                  .total = block.total,
                                  .offset = block.moved,
                                  .from = exchange.group_.config_.rank};
    std::memcpy(out, &header, sizeof header);
    std::byte* const to = static_cast<std::byte*>(out) + sizeof header;
    const std::uint64_t most = block.peer->endpoint->limits().max_packed - sizeof header;
    std::size_t bytes = std::min(most, block.total - block.moved);
    if (block.data.convertor)
        bytes = exchange.group_.all_.hooks_.pack(block.data.convertor, block.moved, to, bytes);
    else
        std::memcpy(to, static_cast<const std::byte*>(block.data.buffer) + block.moved, bytes);
    block.moved += bytes;
    return sizeof header + bytes;
}

Posted Exchange::send_pieces(Block& block) {
    Groups& all = group_.all_;
    all.engine_.tell(*block.peer, Hint::collective, block.total);
    while (block.moved < block.total) {
        const Posted outcome = block.peer->endpoint->send_packed(wire::kPair, pack_pair, &block);
        if (outcome == Posted::done) {
            ++all.counts_.pairs;
            continue;
        }
        if (outcome != Posted::no_room) all.engine_.give_up(*block.peer);
        return outcome;
    }
    all.counts_.bytes += block.total;
    return Posted::done;
}

// Where the block may be put, if the network can, and it has one place.
void Exchange::prepare(Block& block) {
    Endpoint& endpoint = *block.peer->endpoint;
    const Limits& limits = endpoint.limits();
    if (block.data.convertor || limits.max_put == 0 || limits.key_bytes > wire::kMaxKey) return;
    Memory*& its = group_.kept_.empty() ? block.memory : group_.kept_[block.rank].in;
    if (!its) its = endpoint.register_memory(block.data.buffer, block.wanted);
    block.memory = its;
}

bool Exchange::ask() {
    const std::uint32_t ranks = group_.config_.ranks;
    for (; next_ask_ < ranks; ++next_ask_) {
        const std::uint32_t from = (group_.config_.rank + ranks - next_ask_) % ranks;
        if (in_[from] != In::unasked) continue;
        if (!asking_) {
            if (ins_used_ == ins_.size()) return true; // the end of one goes on
            Peer* const peer = group_.member(from);
            if (!peer) return false;
            asking_ = &unused(ins_);
            asking_->peer = peer;
            open(*asking_, from, false);
            ++ins_used_;
            prepare(*asking_);
        }
        struct {
            wire::ReadyHeader header;
            std::byte key[wire::kMaxKey];
        } message;
        Endpoint& endpoint = *asking_->peer->endpoint;
        message.header = {.name = operation_->name,
                          .bytes = asking_->wanted,
                          .address = 0,
                          .process = group_.all_.engine_.process(),
                          .from = group_.config_.rank,
                          .to = from,
                          .key_bytes = 0};
        KeptBlock* const kept = group_.kept_.empty() ? nullptr : &group_.kept_[from];
        std::uint32_t key_bytes = 0;
        if (kept && kept->told) {
            message.header.key_bytes = wire::kKnownKey;
        } else if (const std::size_t bytes = endpoint.limits().key_bytes;
                   asking_->memory && bytes > 0 && endpoint.pack_key(asking_->memory, message.key)) {
            message.header.address = reinterpret_cast<std::uint64_t>(asking_->data.buffer);
            message.header.key_bytes = key_bytes = static_cast<std::uint32_t>(bytes);
        }
        const Posted outcome =
            group_.all_.post(*asking_->peer, wire::kReady, &message, sizeof message.header + key_bytes);
        if (outcome != Posted::done) return false;
        if (kept && kept->told) ++group_.all_.counts_.known;
        if (kept && key_bytes) kept->told = true;
        in_[from] = message.header.key_bytes ? In::put : In::pieces;
        ++group_.all_.counts_.asked;
        asking_ = nullptr;
    }
    return true;
}

bool Exchange::serve() {
    bool room = true;
    for (Block& block : outs_)
        if (block.used) room = go_on(block) != Posted::no_room && room;
    while (questions_.first && outs_used_ < outs_.size()) {
        Early& question = *questions_.first;
        wire::ReadyHeader header;
        std::memcpy(&header, question.message.data(), sizeof header);
        Peer* const peer = group_.member(header.from);
        if (!peer) return false;
        Block& block = unused(outs_);
        questions_.first = question.next;
        block.peer = peer;
        ++outs_used_;
        open(block, header.from, true);
        start(block, question);
        group_.all_.give_back(question);
        room = go_on(block) != Posted::no_room && room;
    }
    return room;
}

// A key of another length is of a host with more adapters or fewer.
void Exchange::start(Block& block, const Early& question) {
    wire::ReadyHeader header;
    std::memcpy(&header, question.message.data(), sizeof header);
    Endpoint& endpoint = *block.peer->endpoint;
    block.wanted = std::min<std::uint64_t>(header.bytes, block.total);
    if (header.bytes != block.total) operation_->error = MP_TRUNCATED;
    block.pieces = true;
    if (block.data.convertor || header.key_bytes == 0) return;
    KeptBlock once, &its = group_.kept_.empty() ? once : group_.kept_[block.rank];
    if (header.key_bytes == endpoint.limits().key_bytes) { // the first one, or of memory that is mapped anew
        if (RemoteKey* const old = std::exchange(its.key, nullptr)) endpoint.release_key(old);
        its.key = endpoint.unpack_key(question.message.data() + sizeof header);
        its.address = header.address;
    }
    if (!its.key) return; // a key that is none, or no memory: the block goes in pieces
    if (!its.out) its.out = endpoint.register_memory(block.data.buffer, block.total);
    block.key = its.key;
    block.address = its.address;
    block.memory = its.out;
    block.pieces = !block.memory;
}

Posted Exchange::go_on(Block& block) {
    const Posted outcome = block.pieces ? send_pieces(block) : write(block);
    if (outcome == Posted::done) end_out(block);
    return outcome;
}

// Data, then a fence, then the message that it is there. The fence need not wait for the completion. A message that
// cannot be sent ends the peer, since it would wait in vain.
Posted Exchange::write(Block& block) {
    Endpoint& endpoint = *block.peer->endpoint;
    Groups& all = group_.all_;
    if (block.outstanding && (block.moved < block.wanted || !endpoint.limits().fence_orders))
        return Posted::in_progress;
    while (block.moved < block.wanted && !block.failed) {
        const std::size_t piece = std::min<std::uint64_t>(block.wanted - block.moved, endpoint.limits().max_put);
        all.engine_.tell(*block.peer, Hint::collective, block.wanted);
        const Posted outcome = endpoint.put(static_cast<std::byte*>(block.data.buffer) + block.moved, piece,
                                            block.memory, block.address + block.moved, block.key, block.completion);
        if (outcome == Posted::no_room) return outcome;
        if (outcome == Posted::failed) {
            all.engine_.give_up(*block.peer);
            return outcome;
        }
        if (outcome == Posted::refused && block.moved == 0) {
            block.pieces = true;
            return send_pieces(block);
        }
        if (outcome == Posted::refused) {
            block.failed = true;
            break;
        }
        block.moved += piece;
        ++all.counts_.puts;
        block.outstanding = outcome == Posted::in_progress;
        if (block.outstanding && block.moved < block.wanted) return outcome;
    }
    if (block.failed && block.outstanding) return Posted::in_progress;
    if (block.outstanding && !endpoint.limits().fence_orders) return Posted::in_progress;
    if (!block.failed && !block.fenced) {
        const Posted outcome = endpoint.fence();
        if (outcome == Posted::no_room) return outcome;
        if (outcome != Posted::done) {
            all.engine_.give_up(*block.peer);
            return Posted::failed;
        }
        block.fenced = true;
    }
    if (!block.told) {
        const Posted outcome = say_arrived(block, !block.failed);
        if (outcome != Posted::done) return outcome;
        block.told = true;
    }
    return block.outstanding ? Posted::in_progress : Posted::done;
}

Posted Exchange::say_arrived(Block& block, bool ok) {
    const wire::ArrivedHeader header{
        .name = operation_->name, .bytes = block.total, .from = group_.config_.rank, .ok = ok};
    return group_.all_.post(*block.peer, wire::kArrived, &header, sizeof header);
}

void Exchange::wrote(Completion& completion, bool ok) {
    Block& block = *reinterpret_cast<Block*>(reinterpret_cast<char*>(&completion) - offsetof(Block, completion));
    block.outstanding = false;
    if (!ok) block.failed = true;
    block.exchange->look_again();
}

void Exchange::end_out(Block& block) {
    if (block.failed) operation_->error = MP_FAILED;
    if (!block.pieces) group_.all_.counts_.put_bytes += block.moved;
    close(block, true);
    out_[block.rank] = Out::over;
    --outs_used_;
    --outs_left_;
}

} // namespace ucx_mp::glue
