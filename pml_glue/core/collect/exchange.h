// All-to-alls of blocks that are more than a few bytes: each pair of ranks for itself, without a plan. Pairs decide by
// their own bytes, which both know. There is nothing to send, a message that nobody has asked for, or a question
// (`ready`) that tells the place of the block, and a put there. Blocks that the network cannot put come in pieces,
// behind the same question.
//
// Rank r sends to r + 1, r + 2 and so on, and asks r - 1, r - 2: nobody is met by all at a time. So many questions, and
// so many puts, are under way as the group's `peers` says. Our own block is the caller's matter.
//
// All writes of others must be over before the operation is. So a group that is broken takes its questions back
// (`cancel`), and waits for the answers of those that live.
#pragma once

#include <memory>
#include <vector>

#include "pml_glue/core/collect/messages.h"
#include "pml_glue/core/engine/engine.h"
#include "pml_glue/core/mp_collect.h"

namespace ucx_mp::glue {

class Group;
struct GroupOperation;

// Came before there was a place for it. From a pool.
struct Early {
    Early* next = nullptr;
    MessageKind kind = 0;
    std::vector<std::byte> message; // all of it
};
struct EarlyList {
    Early *first = nullptr, *last = nullptr;
    void add(Early& one) {
        one.next = nullptr;
        (first ? last->next : first) = &one;
        last = &one;
    }
};

// The state of one operation that has begun. Kept by its group for later ones.
class Exchange {
public:
    explicit Exchange(Group& group);
    Exchange(const Exchange&) = delete;
    // The work of an operation before is over.
    void begin(GroupOperation& operation);
    // As far as there is room. True: it is over.
    [[nodiscard]] bool advance();
    // The same of a group that is broken. True: nobody writes or reads memory of the caller's any more.
    [[nodiscard]] bool wind_up();
    // False: it makes no sense.
    [[nodiscard]] bool take(MessageKind kind, const std::byte* data, std::size_t length);
    // Takes a question back, if it has not been served.
    void cancel(const wire::CancelHeader& header);
    void waits_for(std::vector<Peer*>& peers) const;

    std::unique_ptr<Exchange> next_free;

private:
    // The next step of each rank's block, by rank.
    enum class In : std::uint8_t { over, message, unasked, pieces, put };
    enum class Out : std::uint8_t { over, message, unasked, asked };
    // A block that is under way.
    struct Block {
        Exchange* exchange = nullptr;
        Peer* peer = nullptr;
        std::uint32_t rank = 0;
        bool used = false;
        bool outstanding = false; // the port has the completion, and the memory
        bool pieces = false;      // ours goes in pieces
        bool fenced = false, failed = false;
        bool told = false; // ours: it is there, or will not be; of another's: our question is taken back
        mp_data_t data{};
        std::uint64_t wanted = 0, moved = 0, total = 0; // bytes; total: of our own block
        std::uint64_t address = 0;                      // at the other side
        Memory* memory = nullptr;
        RemoteKey* key = nullptr;
        Completion completion;
    };
    [[nodiscard]] std::uint64_t size(std::uint32_t rank, bool sends) const;
    void open(Block& block, std::uint32_t rank, bool sends) const;
    void close(Block& block, bool sends);
    [[nodiscard]] Block& unused(std::vector<Block>& blocks) const;
    [[nodiscard]] Block* block_of(std::uint32_t rank);
    [[nodiscard]] bool send_messages();
    [[nodiscard]] bool ask();
    void prepare(Block& block);
    [[nodiscard]] bool serve();
    void start(Block& block, const Early& question);
    [[nodiscard]] Posted go_on(Block& block);
    [[nodiscard]] Posted write(Block& block);
    [[nodiscard]] Posted send_pieces(Block& block);
    [[nodiscard]] Posted say_arrived(Block& block, bool ok);
    void end_out(Block& block);
    void end_in(std::uint32_t rank, Block* block);
    [[nodiscard]] bool take_pair(const std::byte* data, std::size_t length);
    [[nodiscard]] bool take_ready(const std::byte* data, std::size_t length);
    [[nodiscard]] bool take_arrived(const std::byte* data, std::size_t length);
    void look_again();
    static std::size_t pack_pair(void* out, void* block);
    static void wrote(Completion& completion, bool ok);

    Group& group_;
    GroupOperation* operation_ = nullptr;
    std::vector<In> in_;
    std::vector<Out> out_;
    std::vector<std::uint64_t> got_; // bytes of a message in pieces
    std::vector<Block> ins_, outs_;
    Block message_;           // that is being sent unasked
    Block* asking_ = nullptr; // of ins_: its question has found no room
    EarlyList questions_;
    std::uint32_t ins_left_ = 0, outs_left_ = 0;
    std::uint32_t next_message_ = 0, next_ask_ = 0; // distance of the next rank
    unsigned ins_used_ = 0, outs_used_ = 0;
};

} // namespace ucx_mp::glue
