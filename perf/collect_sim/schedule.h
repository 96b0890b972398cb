// Collective operations as triggered writes: what each rank puts, and which words have to be here before. Pure. Beside
// those of pml_glue/core/plan there is the thesis' binary tree (Myrinet 3.3), with its acknowledgments, which we have
// for its experiments only.
//
// A word has one writer, and a place at the rank that it is written to. A put is data, if it has some, then its word.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace ucx_mp::collect_sim {

struct Put {
    unsigned to = 0;             // rank
    unsigned word = 0;           // its number there
    std::vector<unsigned> after; // words of ours
    std::uint64_t bytes = 0;     // of data
};
// One rank's part.
struct Part {
    std::vector<Put> puts;         // in the order in which a program does them
    bool in_order = true;          // false: whichever can be done
    std::vector<unsigned> from;    // whose each word of ours is
    std::vector<unsigned> awaited; // words that a call waits for
    bool sent = false;             // a call waits until what it has put has left, too
    std::vector<unsigned> freeing; // words before which no other operation may start here
};
using Schedule = std::vector<Part>; // by rank

// Up and down the tree in which rank q has the children 2q + 1 and 2q + 2.
[[nodiscard]] Schedule binary_barrier(unsigned ranks, std::uint64_t bytes = 0);
// Down the same tree, from rank 0. `acknowledged`: as the thesis has it. A child tells when it has passed on, and
// without that its parent starts nothing else.
[[nodiscard]] Schedule binary_bcast(unsigned ranks, std::uint64_t bytes, bool acknowledged);
// Round k: to rank + 2^k.
[[nodiscard]] Schedule dissemination(unsigned ranks);
// Rank r puts to r + 1, r + 2 and so on, each when told that the block is there. `peers`: so many at a time.
[[nodiscard]] Schedule exchange(unsigned ranks, std::uint64_t bytes, unsigned peers);

} // namespace ucx_mp::collect_sim
