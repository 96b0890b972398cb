// fault_explore: every fault at every step of small scenarios, and every second fault at every later step.
#include <CLI/CLI.hpp>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <new>

#include "explore.h"
#include "softhca/fabric.h"

using namespace ucx_mp::sim;
using Clock = std::chrono::steady_clock;

namespace {

struct Options {
    std::vector<std::string> scenarios, flavours, kinds;
    bool singles = false;
    unsigned first = 1, second = 1, offset = 0, jobs = 2, failures = 10, hang = 60;
};

// What a worker tells, in shared memory: it may crash or hang in a case, which is then named by its parent.
struct Slot {
    std::atomic<std::uint64_t> cases, failing;
    std::atomic<std::uint32_t> unit, second; // at work on; second: 1 + index, 0: the first fault alone
    Fault faults[2];
    std::atomic<unsigned> count;
    std::atomic<unsigned> failures;         // of paths, most in a case
    std::atomic<std::uint64_t> by_messages; // tasks
};
struct Board {
    std::atomic<std::uint32_t> next_unit;
    std::atomic<std::uint64_t> told; // failing cases
    Slot slots[64];
};

std::string spec(const Scenario& scenario, Flavour flavour, std::span<const Fault> faults) {
    std::string text = std::string(scenario.name) + "/" + name(flavour) + ":";
    for (std::size_t i = 0; i < faults.size(); ++i) text += (i ? "," : "") + to_string(faults[i]);
    return text;
}

// The faults that may happen in a run, after `before` if there was one already.
std::vector<Fault> candidates(const Trace& trace, const Fault* before, const std::vector<FaultKind>& kinds,
                              unsigned paths) {
    std::vector<Fault> list;
    const std::uint32_t from = before ? before->step : 0;
    for (const FaultKind kind : kinds)
        for (std::uint8_t path = 0; path < paths; ++path) {
            // Silence makes a difference only to packets.
            if (kind <= FaultKind::slow) {
                for (const std::uint32_t step : trace.packets[path])
                    if (!before || step > from || (step == from && path != before->path))
                        list.push_back({kind, 0, path, step});
                continue;
            }
            for (std::uint8_t node = 0; node < 2; ++node)
                for (const std::uint32_t step : trace.steps) {
                    const bool same = before && path == before->path && node == before->node;
                    if (!before || step > from || (step == from && !same)) list.push_back({kind, node, path, step});
                }
        }
    return list;
}

class Enumeration {
public:
    Enumeration(const softhca::FabricImage& image, const Scenario& scenario, Flavour flavour, const Options& options,
                const std::vector<FaultKind>& kinds, Board& board)
        : image_(image), scenario_(scenario), flavour_(flavour), options_(options), kinds_(kinds), board_(board) {}

    // False: something failed.
    bool go() {
        const auto begin = Clock::now();
        const Outcome plain = run_case(image_, scenario_, flavour_, {});
        if (!plain.verdict.empty()) return report({}, plain.verdict), false;
        if (run_case(image_, scenario_, flavour_, {}).fingerprint != plain.fingerprint)
            return report({}, "a second run differs from the first\n"), false;
        firsts_ = candidates(plain.trace, nullptr, kinds_, paths());
        const std::uint64_t told = board_.told;
        new (&board_) Board{};
        board_.told = told;
        std::vector<pid_t> workers(options_.jobs);
        std::vector<std::pair<std::uint64_t, Clock::time_point>> alive(options_.jobs);
        for (unsigned w = 0; w < options_.jobs; ++w) {
            workers[w] = start(w, false);
            alive[w] = {0, Clock::now()};
        }
        auto news = Clock::now();
        for (unsigned left = options_.jobs; left;) {
            usleep(20'000);
            for (unsigned w = 0; w < options_.jobs; ++w) {
                if (!workers[w]) continue;
                Slot& slot = board_.slots[w];
                const char* how = nullptr;
                int status = 0;
                if (waitpid(workers[w], &status, WNOHANG) == workers[w]) {
                    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
                        workers[w] = 0;
                        --left;
                        continue;
                    }
                    how = "the program crashed";
                } else if (slot.cases != alive[w].first) {
                    alive[w] = {slot.cases, Clock::now()};
                } else if (Clock::now() - alive[w].second > std::chrono::seconds(options_.hang)) {
                    kill(workers[w], SIGKILL);
                    waitpid(workers[w], &status, 0);
                    how = "no end in real time";
                }
                if (!how) continue;
                ++slot.failing;
                report({slot.faults, slot.count}, std::string(how) + "\n");
                workers[w] = start(w, true);
                alive[w] = {slot.cases, Clock::now()};
            }
            if (Clock::now() - news > std::chrono::seconds(20)) {
                news = Clock::now();
                std::printf("... %s: %u of %zu first faults, %llu cases\n", spec(scenario_, flavour_, {}).c_str(),
                            board_.next_unit.load(), firsts_.size(), (unsigned long long)sum(&Slot::cases));
                std::fflush(stdout);
            }
        }
        unsigned most = 0;
        for (const Slot& slot : board_.slots) most = std::max(most, slot.failures.load());
        const std::uint64_t failing = sum(&Slot::failing);
        std::printf("%-12s %-8s %4zu steps in %4.0f us", scenario_.name, name(flavour_), plain.trace.steps.size(),
                    double(plain.time) / 1e3);
        if (plain.switches + plain.by_rings + plain.parks)
            std::printf(" (%llu switches, %llu messages by rings, %llu partings)", (unsigned long long)plain.switches,
                        (unsigned long long)plain.by_rings, (unsigned long long)plain.parks);
        if (scenario_.tasks) std::printf(" (%llu tasks by messages)", (unsigned long long)sum(&Slot::by_messages));
        std::printf(", %5zu first faults, %8llu cases, at most %u path failures, %llu failing, %.1f s\n",
                    firsts_.size(), (unsigned long long)sum(&Slot::cases), most, (unsigned long long)failing,
                    std::chrono::duration<double>(Clock::now() - begin).count());
        std::fflush(stdout);
        cases += sum(&Slot::cases);
        return failing == 0;
    }
    std::uint64_t cases = 0;

private:
    [[nodiscard]] unsigned paths() const { return scenario_.single_path ? 1 : 2; }
    template <class T> std::uint64_t sum(T field) const {
        std::uint64_t all = 0;
        for (const Slot& slot : board_.slots) all += (slot.*field).load();
        return all;
    }
    pid_t start(unsigned w, bool again) {
        std::fflush(stdout);
        const pid_t pid = fork();
        if (pid < 0) throw std::runtime_error("cannot fork");
        if (pid) return pid;
        work(board_.slots[w], again);
        std::fflush(stdout);
        _exit(0);
    }

    void work(Slot& slot, bool again) {
        std::uint32_t resume = again ? slot.second + 1 : 0; // behind the case that has killed the one before
        std::uint32_t unit = again ? slot.unit.load() : board_.next_unit++;
        for (; unit < firsts_.size() && board_.told < options_.failures; unit = board_.next_unit++, resume = 0) {
            if ((unit + options_.offset) % options_.first) continue;
            slot.unit = unit;
            slot.second = 0;
            Trace trace;
            if (resume == 1) continue; // it was the first fault alone: no use in a second one
            if (!check(slot, {firsts_[unit]}, resume == 0, trace) || options_.singles) continue;
            const std::vector<Fault> seconds = candidates(trace, &firsts_[unit], kinds_, paths());
            for (std::uint32_t k = resume ? resume - 1 : 0; k < seconds.size() && board_.told < options_.failures;
                 ++k) {
                if ((k + unit * 7919 + options_.offset) % options_.second) continue;
                slot.second = k + 1;
                Trace unused;
                (void)check(slot, {firsts_[unit], seconds[k]}, true, unused);
            }
        }
    }

    bool check(Slot& slot, std::initializer_list<Fault> faults, bool count, Trace& trace) {
        std::copy(faults.begin(), faults.end(), slot.faults);
        slot.count = static_cast<unsigned>(faults.size());
        slot.cases += count;
        Outcome out = run_case(image_, scenario_, flavour_, {faults.begin(), faults.size()});
        trace = std::move(out.trace);
        if (out.failures > slot.failures) slot.failures = out.failures;
        slot.by_messages += out.by_messages;
        if (out.verdict.empty()) return true;
        ++slot.failing;
        report({faults.begin(), faults.size()}, out.verdict);
        return false;
    }

    void report(std::span<const Fault> faults, const std::string& verdict) {
        ++board_.told;
        std::printf("FAILED: fault_explore --replay %s\n%s", spec(scenario_, flavour_, faults).c_str(),
                    verdict.c_str());
        std::fflush(stdout);
    }

    const softhca::FabricImage& image_;
    const Scenario& scenario_;
    const Flavour flavour_;
    const Options& options_;
    const std::vector<FaultKind>& kinds_;
    Board& board_;
    std::vector<Fault> firsts_;
};

constexpr Flavour kFlavours[] = {Flavour::rc, Flavour::markers, Flavour::dc};

// SCENARIO/FLAVOUR:FAULT,FAULT. 0: no mistake.
int replay(const softhca::FabricImage& image, const std::string& text, bool loud) {
    const std::size_t slash = text.find('/'), colon = text.find(':');
    if (slash != text.npos && colon != text.npos && slash < colon)
        for (const Scenario& scenario : scenarios())
            for (const Flavour flavour : kFlavours) {
                if (text.substr(0, slash) != scenario.name ||
                    text.substr(slash + 1, colon - slash - 1) != name(flavour))
                    continue;
                std::vector<Fault> faults;
                for (std::size_t at = colon + 1; at < text.size();) {
                    const std::size_t end = std::min(text.find(',', at), text.size());
                    const auto fault = parse_fault(text.substr(at, end - at));
                    if (!fault) break;
                    faults.push_back(*fault);
                    at = end + 1;
                    if (at < text.size()) continue;
                }
                if (spec(scenario, flavour, faults) != text) break;
                const auto begin = Clock::now();
                const Outcome out = run_case(image, scenario, flavour, faults, loud);
                std::printf("%s: %zu steps, %llu events, %.3f us, %u path failures, %u queues ended, %u tasks by "
                            "messages, %.2f ms of real time\n%s%s",
                            text.c_str(), out.trace.steps.size(), (unsigned long long)out.events,
                            double(out.time) / 1e3, out.failures, out.queues_ended, out.by_messages,
                            std::chrono::duration<double>(Clock::now() - begin).count() * 1e3, out.verdict.c_str(),
                            out.verdict.empty() ? "no mistake\n" : "FAILED\n");
                return !out.verdict.empty();
            }
    std::fprintf(stderr, "fault_explore: --replay %s: SCENARIO/FLAVOUR:KIND.PATH@STEP,... as printed (--list)\n",
                 text.c_str());
    return 2;
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app{
        "Runs small scenarios between two nodes with two paths in virtual time, with a fault at every step and a "
        "second\n"
        "one at every later step, and checks everything. Faults: lose.PATH (one packet), hush.PATH (silent for a\n"
        "while), mute.PATH (no acknowledgments for a while), slow.PATH (packets of a while come much later),\n"
        "dip.NODE.PATH and cut.NODE.PATH (the node's port is down for a short or long while), forge.NODE.WHAT (an\n"
        "intruder speaks to the node in the other's name: 0 handshakes, 1 connections). Without options\n"
        "everything is enumerated, which takes long; --first and --second take a part of it.\n"
        "Example: fault_explore --scenario fences --flavour markers --second 50"};
    Options options;
    std::string spec_to_replay, fabric = "two-rail";
    bool list = false, loud = false;
    app.add_option("--scenario", options.scenarios, "by name; default: all")->delimiter(',');
    app.add_option("--flavour", options.flavours, "rc, markers (rc without packet numbers), dc; default: all")
        ->delimiter(',')
        ->check(CLI::IsMember({"rc", "markers", "dc"}));
    app.add_option("--kinds", options.kinds, "of faults; default: all")
        ->delimiter(',')
        ->check(CLI::IsMember({"lose", "hush", "mute", "slow", "dip", "cut", "forge"}));
    app.add_flag("--singles", options.singles, "no second faults");
    app.add_option("--first", options.first, "only every so many first faults")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--second", options.second, "only every so many second faults")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--offset", options.offset, "which of them")->capture_default_str();
    app.add_option("--jobs", options.jobs, "processes")->check(CLI::Range(1, 64))->capture_default_str();
    app.add_option("--failures", options.failures, "stop after so many failing cases")->capture_default_str();
    app.add_option("--hang", options.hang, "seconds of real time that no case takes")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--fabric", fabric, "a file, or the name of one of config/fabrics; the first two nodes")
        ->capture_default_str();
    app.add_option("--replay", spec_to_replay, "one case, as printed");
    app.add_flag("--loud", loud, "of --replay: tell what happens");
    app.add_flag("--list", list, "the scenarios");
    CLI11_PARSE(app, argc, argv);
    if (list) {
        for (const Scenario& s : scenarios())
            std::printf("%-12s %-10s %-8s %s\n", s.name, s.scripts[0], s.scripts[1], s.about);
        return 0;
    }
    try {
        const softhca::FabricBlock block = softhca::load_fabric(fabric);
        if (!spec_to_replay.empty()) return replay(block.image(), spec_to_replay, loud);
        std::vector<FaultKind> kinds;
        for (unsigned k = 0; k < kFaultKinds; ++k) {
            const std::string text = to_string(Fault{static_cast<FaultKind>(k)});
            if (options.kinds.empty() ||
                std::count(options.kinds.begin(), options.kinds.end(), text.substr(0, text.find('.'))))
                kinds.push_back(static_cast<FaultKind>(k));
        }
        for (const std::string& wanted : options.scenarios)
            if (std::none_of(scenarios().begin(), scenarios().end(),
                             [&](const Scenario& s) { return wanted == s.name; })) {
                std::fprintf(stderr, "fault_explore: --scenario %s: there is none such (--list)\n", wanted.c_str());
                return 2;
            }
        void* shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED) throw std::runtime_error("cannot map memory");
        Board& board = *new (shared) Board{};
        bool good = true;
        std::uint64_t cases = 0;
        const auto begin = Clock::now();
        board.told = 0;
        for (const Scenario& scenario : scenarios())
            for (const Flavour flavour : kFlavours) {
                if (board.told >= options.failures) break;
                const auto wanted = [](const std::vector<std::string>& names, const char* which) {
                    return names.empty() || std::count(names.begin(), names.end(), which);
                };
                if (!wanted(options.scenarios, scenario.name) || !wanted(options.flavours, name(flavour))) continue;
                Enumeration enumeration(block.image(), scenario, flavour, options, kinds, board);
                good &= enumeration.go();
                cases += enumeration.cases;
            }
        std::printf("%llu cases in %.1f s: %s\n", (unsigned long long)cases,
                    std::chrono::duration<double>(Clock::now() - begin).count(), good ? "no mistake" : "FAILED");
        return !good;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "fault_explore: %s\n", e.what());
        return 2;
    }
}
