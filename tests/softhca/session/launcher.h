// `softhca run`: makes or joins a session and runs a program on it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/segment.h"
#include "fabric/image_builder.h"
#include "session/script.h"

namespace softhca {

// A launcher's hold on a session: as long as it exists the session exists, also if its keeper is killed.
class SessionHold {
public:
    // Joins the running session `name`, or starts it with `fabric`. nullptr fabric: join only what runs.
    // Throws std::runtime_error: the session runs another fabric, or can't be made.
    SessionHold(const std::string& name, const FabricBlock* fabric);
    ~SessionHold();
    SessionHold(const SessionHold&) = delete;

    [[nodiscard]] bool created() const { return created_; } // false: joined
    Segment& seg() { return *segment_; }
    [[nodiscard]] int connection() const { return connection_; } // readable: receive()
    // "log" text, or nothing; replaces the keeper if it is gone.
    std::string receive();
    void watch_child(int32_t pid);                     // tells the keeper
    void remember_child(int32_t pid) { child_ = pid; } // for the next keeper
    void start_script(std::vector<ScriptStep> steps);
    void be_verbose();

private:
    void join_or_create(const FabricBlock* fabric);
    void create(const FabricBlock& fabric, int listen_fd);
    void let_go();
    bool connect_to_keeper(); // false: there is none
    void start_keeper(int listen_fd);
    void replace_keeper();
    void send_state(Nanos steps_from);
    void send_text(const std::string& text);

    std::string name_;
    int connection_ = -1, file_ = -1;
    Segment* segment_ = nullptr;
    bool created_ = false, verbose_ = false, orphaned_ = false;
    int32_t child_ = 0;
    std::vector<ScriptStep> steps_; // `at` is CLOCK_MONOTONIC here
};

struct RunOptions {
    std::string fabric; // empty: default, or whatever the joined session runs
    bool ideal = false;
    std::string session; // empty: one of its own
    std::string node;    // empty: chosen by rank or free
    std::string place;   // nodes of ranks 0, 1, ...; empty: a rank's number
    std::string faults;  // script file
    uint64_t seed = 0;
    bool seed_given = false, verbose = false;
    std::string record; // CSV of link counters
    uint32_t record_ms = 10;
    std::string library; // libsofthca.so, absolute
    std::vector<std::string> command;
};

// Returns the exit status for main: the program's, 128 + signal, or 127 if it can't be run. Throws std::runtime_error
// for mistakes of the user.
int run_program(const RunOptions& options);

} // namespace softhca
