// Random collective operations of pml_glue's core between the nodes of a Cluster: traffic of the fault campaigns. Each
// node's program calls those of several communicators, some of them persistent ones, in the order that all members
// have, when it likes, and several at a time. Every byte is checked. All follows from the seed.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "pml/collect_calls.h"
#include "pml/group_config.h"
#include "pml/sim_job.h"
#include "pml_glue/core/collect/group.h"

namespace ucx_mp::sim {

struct CollectivesOptions {
    std::uint64_t seed = 1;
    unsigned operations = 200;           // of each communicator
    mp_engine_t engine = MP_ENGINE_HOST; // else adapters that wait put parts
    bool threads = false;                // programs compute now and then, and a progress thread has the turns
    Nanos gap = 25'000;                  // between two calls of a node, on average
};

class Collectives {
public:
    Collectives(Cluster& cluster, const CollectivesOptions& options);
    ~Collectives();
    Collectives(const Collectives&) = delete;

    // Everything called, complete and checked within `limit` of virtual time.
    bool run(Nanos limit);
    // Empty: no mistake.
    [[nodiscard]] std::string verdict();
    // The node is silent from now on, as if its process were killed with all its adapters. Its communicators end.
    void kill(unsigned node);
    // Of all nodes, by a name of Groups::statistics().
    [[nodiscard]] std::uint64_t count(const std::string& name) const;
    std::uint64_t bytes = 0, complete = 0, failed = 0;

private:
    using Called = glue::test::Called;
    using Under = glue::test::Under;
    struct Item {
        Called call;
        bool persistent;
    };
    // One of its ranks.
    struct Member {
        unsigned node = 0;
        glue::Group *group = nullptr, *request = nullptr;
        std::size_t called = 0; // items
        std::list<Under> open;
        std::unique_ptr<Under> persistent;
        unsigned starts = 0;
        bool active = false; // the persistent one
    };
    struct Communicator {
        std::uint32_t context = 0;
        std::vector<Item> items;
        std::vector<Member> members;
    };
    // A failed call, and the bytes that it has left: nobody writes there any more.
    struct Left {
        std::list<Under> under;
        std::vector<std::byte> bytes;
    };
    [[nodiscard]] unsigned dice(unsigned n) { return static_cast<unsigned>(random_() % n); }
    void make_communicator();
    void make_group(Communicator& communicator, unsigned rank);
    void step(unsigned node);
    void step_later(unsigned node);
    [[nodiscard]] bool call(Communicator& communicator, unsigned rank);
    void compute(unsigned node);
    bool progress(unsigned node);
    [[nodiscard]] bool look(unsigned node);
    [[nodiscard]] bool look(const Communicator& communicator, Member& member);
    [[nodiscard]] bool fine(const Communicator& communicator, const Member& member, Under& under,
                            const std::vector<std::byte>& wanted);
    [[nodiscard]] bool has_dead(const Communicator& communicator) const;
    [[nodiscard]] bool over(const Communicator& communicator, const Member& member) const;

    Cluster& cluster_;
    const CollectivesOptions options_;
    std::mt19937_64 random_;
    MpiJob job_;
    std::deque<Communicator> communicators_;
    std::vector<std::unique_ptr<glue::Groups>> groups_;
    std::list<Left> left_;
    std::vector<bool> dead_;
    bool any_dead_ = false;
    unsigned number_ = 0;
    std::string mistakes_;
};

} // namespace ucx_mp::sim
