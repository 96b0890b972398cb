// Sessions as a user has them: the command `softhca` runs programs, its keeper cleans up, whoever is killed. This
// program also plays the part of the program that is run: with --play it joins the session and does what it is told on
// stdin.
#define BOOST_TEST_MODULE softhca_session
#define BOOST_TEST_NO_MAIN
#include <boost/test/unit_test.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>

#include "core/process.h"
#include "fabric/image_builder.h"
#include "session/client.h"
#include "session/faults.h"
#include "session/script.h"

using namespace softhca;
namespace fs = std::filesystem;

namespace {

bool wait_until(const std::function<bool()>& condition, int milliseconds = 30'000) {
    for (int i = 0; i < milliseconds; ++i, usleep(1000))
        if (condition()) return true;
    return condition();
}

std::string new_session() {
    static int n = 0;
    return "unit-" + std::to_string(getpid()) + "-" + std::to_string(n++);
}

bool runs(const std::string& session) {
    const auto names = running_sessions();
    return std::find(names.begin(), names.end(), session) != names.end();
}

// A `softhca ...` command with pipes on stdin and stdout.
class Command {
public:
    Command(std::vector<std::string> words, bool own_group = true) {
        words.insert(words.begin(), UCX_MP_BINARY_DIR "/bin/softhca");
        int in[2], out[2];
        if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC)) std::abort();
        pid_ = fork();
        if (pid_ == 0) {
            if (own_group) setpgid(0, 0);
            dup2(in[0], 0), dup2(out[1], 1), dup2(out[1], 2);
            std::vector<char*> argv;
            for (auto& w : words) argv.push_back(w.data());
            argv.push_back(nullptr);
            execv(argv[0], argv.data());
            _exit(126);
        }
        close(in[0]), close(out[1]);
        in_ = in[1], out_ = out[0];
    }
    ~Command() {
        close(in_), close(out_);
        if (pid_ > 0) kill(pid_, SIGKILL), wait();
    }
    void say(const std::string& line) { (void)!write(in_, (line + "\n").data(), line.size() + 1); }
    // The next line of output, "" after half a minute or at the end.
    std::string line() {
        for (size_t end;;) {
            if ((end = text_.find('\n')) != std::string::npos) {
                const std::string l = text_.substr(0, end);
                text_.erase(0, end + 1);
                return l;
            }
            pollfd p{out_, POLLIN, 0};
            char buffer[4096];
            ssize_t n = poll(&p, 1, 30000) > 0 ? read(out_, buffer, sizeof buffer) : 0;
            if (n <= 0) return std::exchange(text_, "");
            text_.append(buffer, static_cast<size_t>(n));
        }
    }
    std::string ask(const std::string& what) {
        say(what);
        return line();
    }
    int wait() { // exit status or -signal
        int status = 0;
        if (waitpid(pid_, &status, 0) != pid_) return -1000;
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    pid_t pid() const { return pid_; }
    void stop_listening() { close(in_), in_ = -1; }

private:
    pid_t pid_;
    int in_, out_;
    std::string text_;
};

std::string self() { return fs::read_symlink("/proc/self/exe"); }

Command player(const std::string& session, const std::vector<std::string>& options = {}) {
    std::vector<std::string> words{"run", "--session", session};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", self(), "--play"});
    return Command(words);
}

pid_t keeper_of(const std::string& session) {
    try {
        const std::string text = send_command(session, "ls");
        return std::atoi(text.c_str() + text.find("keeper ") + 7);
    } catch (const std::exception&) { return 0; }
}

// Processes that have the session's memory open.
int holders_of(const std::string& session) {
    int found = 0;
    std::error_code gone;
    for (const auto& process : fs::directory_iterator("/proc", gone)) {
        if (!isdigit(process.path().filename().string()[0])) continue;
        for (const auto& file : fs::directory_iterator(process.path() / "fd", gone))
            found += fs::read_symlink(file.path(), gone).string().starts_with("/memfd:softhca-" + session + " ");
    }
    return found;
}

// Never kill(0, ...): that is this test.
void kill_hard(pid_t pid) {
    BOOST_REQUIRE(pid > 1);
    kill(pid, SIGKILL);
}
pid_t pid_of(Command& c) { return std::atoi(c.ask("pid").c_str()); }

// The played program.
int play() {
    Process* p = Process::attach();
    std::string word, line;
    while (std::getline(std::cin, line)) {
        std::istringstream in(line);
        in >> word;
        if (!p)
            std::cout << "not attached" << std::endl;
        else if (word == "slot")
            std::cout << p->slot() << std::endl;
        else if (word == "pid")
            std::cout << getpid() << std::endl;
        else if (word == "node")
            std::cout << p->choose_node() << std::endl;
        else if (word == "live")
            std::cout << p->seg().live_procs.load() << std::endl;
        else if (word == "claim")
            std::cout << p->claim_qp() << " " << p->alloc(100'000) << std::endl;
        else if (word == "owned") { // blocks and pages of a slot
            uint32_t slot, n = 0;
            in >> slot;
            Segment& seg = p->seg();
            for (uint32_t i = 0; i < seg.qp_blocks; ++i)
                n += seg.at<std::atomic<uint32_t>>(seg.qp_owner)[i] == slot + 1;
            for (uint64_t i = 0; i < seg.heap_top; ++i)
                n += seg.at<std::atomic<uint32_t>>(seg.heap_owner)[i] == slot + 1;
            std::cout << n << std::endl;
        } else if (word == "port") {
            uint32_t port;
            in >> port;
            std::cout << p->seg().port(port).up.load() << std::endl;
        } else if (word == "disturbed")
            std::cout << p->seg().fabric.disturbed.load() << std::endl;
        else if (word == "exec") {
            execl(self().c_str(), self().c_str(), "--play", "again", nullptr);
        } else if (word == "exec-cat") {
            execlp("cat", "cat", nullptr);
        } else if (word == "exit") {
            int status;
            in >> status;
            return status;
        }
    }
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    if (argc > 2) std::cout << argv[2] << std::endl;
    if (argc > 1 && std::strcmp(argv[1], "--play") == 0) return play();
    signal(SIGPIPE, SIG_IGN);
    return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}

BOOST_AUTO_TEST_CASE(exit_status_is_passed_on) {
    BOOST_TEST(Command({"run", "--", "sh", "-c", "exit 7"}).wait() == 7);
    BOOST_TEST(Command({"run", "--", "sh", "-c", "kill -9 $$"}).wait() == 128 + 9);
    Command missing({"run", "--", "/no/such/program"});
    BOOST_TEST(missing.line() == "softhca: can't run '/no/such/program': No such file or directory");
    BOOST_TEST(missing.wait() == 127);
    Command fabric({"run", "--fabric", "/no/such/fabric.yaml", "--", "true"});
    BOOST_TEST(fabric.line().find("/no/such/fabric.yaml") != std::string::npos);
    BOOST_TEST(fabric.wait() == 1);
}

BOOST_AUTO_TEST_CASE(signals_are_forwarded) {
    Command c({"run", "--", "sh", "-c", "trap 'exit 33' USR1; echo ready; while :; do sleep 0.01; done"});
    BOOST_TEST(c.line() == "ready");
    kill(c.pid(), SIGUSR1);
    BOOST_TEST(c.wait() == 33);
}

BOOST_AUTO_TEST_CASE(processes_join_one_session_and_nothing_is_left) {
    const std::string name = new_session();
    {
        Command a = player(name), b = player(name, {"--node", "7"});
        const std::string slot = a.ask("slot");
        BOOST_TEST(slot != b.ask("slot"));
        BOOST_TEST(a.ask("live") == "2");
        BOOST_TEST(a.ask("node") == "0");
        BOOST_TEST(b.ask("node") == "7");
        b.ask("claim");
        BOOST_TEST(a.ask("owned " + b.ask("slot")) == "3"); // a block of queue pairs, two pages
        const std::string other = b.ask("slot");
        b.say("exit 5");
        BOOST_TEST(b.wait() == 5);
        BOOST_TEST(wait_until([&] { return a.ask("live") == "1"; }));
        BOOST_TEST(a.ask("owned " + other) == "0");
        Command wrong({"run", "--session", name, "--fabric", "two-rail", "--", "true"});
        BOOST_TEST(wrong.line() == "softhca: session '" + name + "' runs fabric 'ideal-2rail' (ideal), not 'two-rail'");
        BOOST_TEST(wrong.wait() == 1);
        a.say("exit 0");
        BOOST_TEST(a.wait() == 0);
    }
    BOOST_TEST(wait_until([&] { return !runs(name); }));
    for (const auto& e : fs::directory_iterator("/dev/shm"))
        BOOST_TEST(e.path().filename().string().find("softhca") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_killed_process_is_cleaned_up_at_once) {
    const std::string name = new_session();
    Command a = player(name), b = player(name);
    a.ask("slot"); // it is there before b goes
    const std::string slot = b.ask("slot");
    b.ask("claim");
    kill_hard(pid_of(b));
    BOOST_TEST(b.wait() == 128 + 9);
    BOOST_TEST(wait_until([&] { return a.ask("owned " + slot) == "0"; }));
    BOOST_TEST(a.ask("live") == "1");
    Command c = player(name);
    BOOST_TEST(c.ask("slot") == slot); // reusable
}

BOOST_AUTO_TEST_CASE(exec_ends_the_old_program_in_the_session) {
    const std::string name = new_session();
    Command a = player(name), b = player(name);
    const std::string pid = b.ask("pid"), slot = b.ask("slot");
    b.ask("claim");
    BOOST_TEST(b.ask("exec") == "again");
    BOOST_TEST(b.ask("pid") == pid);
    BOOST_TEST(wait_until([&] { return a.ask("live") == "2"; }));
    BOOST_TEST(a.ask("owned " + slot) == "0");
    // Also if the new program never joins.
    b.say("exec-cat");
    BOOST_TEST(wait_until([&] { return a.ask("live") == "1"; }));
    BOOST_TEST(b.ask("meow") == "meow");
}

BOOST_AUTO_TEST_CASE(a_killed_keeper_is_replaced) {
    const std::string name = new_session();
    Command a = player(name), b = player(name);
    const std::string slot = b.ask("slot");
    b.ask("claim"), a.ask("claim");
    for (int round = 0; round < 5; ++round) {
        const pid_t keeper = keeper_of(name);
        BOOST_REQUIRE(keeper > 0);
        kill_hard(keeper);
        if (round == 2) kill_hard(pid_of(b)); // dies while nobody looks
        BOOST_REQUIRE(wait_until([&] { return keeper_of(name) > 0 && keeper_of(name) != keeper; }));
    }
    BOOST_TEST(wait_until([&] { return a.ask("owned " + slot) == "0"; }));
    BOOST_TEST(a.ask("owned " + a.ask("slot")) == "3");
    Command c = player(name);
    BOOST_TEST(c.ask("live") == "2");
    a.say("exit 0"), c.say("exit 0");
    a.wait(), c.wait();
    BOOST_TEST(wait_until([&] { return !runs(name); }));
}

BOOST_AUTO_TEST_CASE(a_killed_launcher_leaves_its_program_in_the_session) {
    const std::string name = new_session();
    Command a = player(name);
    const pid_t program = pid_of(a);
    kill(a.pid(), SIGKILL);
    BOOST_TEST(a.wait() == -SIGKILL);
    usleep(300'000);
    BOOST_TEST(a.ask("live") == "1"); // still there, and so is the keeper
    Command b = player(name);
    BOOST_TEST(b.ask("live") == "2");
    kill_hard(program);
    BOOST_TEST(wait_until([&] { return b.ask("live") == "1"; }));
}

BOOST_AUTO_TEST_CASE(a_program_that_has_not_joined_yet_keeps_the_session) {
    const std::string name = new_session();
    Command a({"run", "--session", name, "--", "sh", "-c", "echo $$; cat"});
    const pid_t program = std::atoi(a.line().c_str());
    kill_hard(a.pid());
    a.wait();
    usleep(400'000);
    BOOST_TEST(runs(name));
    kill_hard(program);
    BOOST_TEST(wait_until([&] { return !runs(name); }));
}

BOOST_AUTO_TEST_CASE(everything_killed_leaves_nothing) {
    const std::string name = new_session();
    Command a = player(name), b = player(name);
    b.ask("slot");
    const pid_t keeper = keeper_of(name), pa = pid_of(a), pb = pid_of(b);
    for (pid_t pid : {a.pid(), b.pid(), keeper, pa, pb}) kill_hard(pid);
    a.wait(), b.wait();
    BOOST_TEST(wait_until([&] { return !runs(name); }));
    Command ls({"ls"});
    for (std::string line; !(line = ls.line()).empty();) BOOST_TEST(line.find(name) == std::string::npos);
    BOOST_TEST(wait_until([&] { return holders_of(name) == 0; }));
    for (const auto& e : fs::directory_iterator("/dev/shm"))
        BOOST_TEST(e.path().filename().string().find("softhca") == std::string::npos);
}

// Keeper and launchers killed at once: the programs go on, and whoever uses the command next sets things right.
BOOST_AUTO_TEST_CASE(a_session_without_keeper_and_launchers_is_taken_over) {
    const std::string name = new_session();
    {
        Command a = player(name), b = player(name), c = player(name);
        a.ask("slot"), c.ask("slot");
        const std::string slot = b.ask("slot");
        b.ask("claim");
        const pid_t keeper = keeper_of(name), pa = pid_of(a), pb = pid_of(b), pc = pid_of(c);
        for (const pid_t pid : {a.pid(), b.pid(), c.pid()}) kill(pid, SIGSTOP); // or one would replace the keeper first
        for (const pid_t pid : {keeper, a.pid(), b.pid(), c.pid(), pb}) kill_hard(pid);
        a.wait(), b.wait(), c.wait();
        BOOST_TEST(wait_until([&] { return !runs(name); }));
        BOOST_TEST(a.ask("owned " + slot) == "3"); // nobody has cleaned up
        const std::string words = "softhca: session '" + name + "' had lost its keeper: a new one cleans up after 1 dead process, 2 live";
        const auto said = [&] { // by a command that is about something else
            Command trace({"trace", "--fabric", "two-rail", "0:softhca_0:1", "1:softhca_0:1"});
            bool found = false;
            for (std::string line; !(line = trace.line()).empty();) found |= line == words;
            return found;
        };
        BOOST_TEST(said());
        BOOST_TEST(wait_until([&] { return a.ask("owned " + slot) == "0"; }));
        BOOST_TEST(a.ask("live") == "2");
        BOOST_TEST(!said()); // once
        Command d = player(name);
        BOOST_TEST(d.ask("live") == "3");
        d.say("exit 0");
        BOOST_TEST(d.wait() == 0);
        BOOST_TEST(runs(name));
        kill_hard(pa), kill_hard(pc);
        BOOST_TEST(wait_until([&] { return !runs(name); }));
    }
    BOOST_TEST(wait_until([&] { return holders_of(name) == 0; }));
}

BOOST_AUTO_TEST_CASE(a_program_that_can_not_join_says_why) {
    setenv(kSessionEnv, "no-such-session", 1);
    BOOST_TEST(!Process::attach());
    unsetenv(kSessionEnv);
    BOOST_TEST(!Process::attach());
    BOOST_CHECK_THROW(send_command("no-such-session", "ls"), std::runtime_error);
}

BOOST_AUTO_TEST_CASE(fault_commands_act) {
    const std::string name = new_session();
    Command a = player(name);
    BOOST_TEST(a.ask("port 1") == "1");
    send_command(name, "port down 0:softhca_1:1");
    BOOST_TEST(a.ask("port 1") == "0");
    BOOST_TEST(a.ask("disturbed") == "1");
    send_command(name, "fault drop 0.5% *:0:*");
    BOOST_TEST(a.ask("disturbed") == "257"); // the one port, and one of each of 256 nodes
    kill_hard(keeper_of(name));              // what is down stays down
    BOOST_REQUIRE(wait_until([&] { return keeper_of(name) > 0; }));
    BOOST_TEST(a.ask("port 1") == "0");
    send_command(name, "port up 0:softhca_1:1");
    BOOST_TEST(a.ask("port 1") == "1");
    send_command(name, "clear");
    BOOST_TEST(a.ask("disturbed") == "0");
    // A stopped process answers only when it is continued.
    BOOST_TEST(a.ask("node") == "0");
    BOOST_TEST(send_command(name, "stop 0") == "1 process");
    a.say("live");
    usleep(100'000);
    BOOST_TEST(send_command(name, "ls").find("stopped") != std::string::npos);
    BOOST_TEST(send_command(name, "cont 0") == "1 process");
    BOOST_TEST(a.line() == "1");
    BOOST_TEST(send_command(name, "node-death 0") == "1 process");
    BOOST_TEST(a.wait() == 128 + 9);
}

BOOST_AUTO_TEST_CASE(fault_scripts_run_on_time_also_under_a_new_keeper) {
    const std::string name = new_session(), file = fs::temp_directory_path() / (name + ".faults");
    std::ofstream(file) << "at 1s port down 0:0:1 # comment\nafter 4s port up 0:0:1\n";
    const auto begin = std::chrono::steady_clock::now();
    const auto earlier_than = [&](double seconds) {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds;
    };
    Command a = player(name, {"--faults", file, "--seed", "3"});
    BOOST_TEST(a.line() == "softhca: faults from " + file + ", seed 3");
    fs::remove(file);
    // What the script does is only known to be ahead or behind while this process is not late itself.
    const bool up = a.ask("port 0") == "1";
    BOOST_TEST((up || !earlier_than(1)));
    const bool down = wait_until([&] { return a.ask("port 0") == "0" || !earlier_than(5); });
    kill_hard(keeper_of(name));
    BOOST_TEST(down);
    BOOST_TEST(wait_until([&] { return a.ask("port 0") == "1"; }));
    BOOST_TEST(!earlier_than(4));
}

BOOST_AUTO_TEST_CASE(trace_shows_a_running_session) {
    const std::string session = new_session();
    Command program = player(session, {"--fabric", "two-rail"});
    BOOST_TEST(program.ask("node") == "0");
    const auto last_line = [&] {
        Command trace({"trace", "--session", session, "0:softhca_0:1", "1:softhca_0:1"});
        std::string last;
        for (std::string line; !(line = trace.line()).empty();) last = line;
        BOOST_TEST(trace.wait() == 0);
        return last;
    };
    BOOST_TEST(last_line().find("delivered") != std::string::npos);
    send_command(session, "port down 1:softhca_0:1");
    BOOST_TEST(last_line().find("delivered") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(routes_shows_a_running_session) {
    const std::string session = new_session();
    Command program = player(session, {"--fabric", "four-path"});
    BOOST_TEST(program.ask("node") == "0");
    const auto tables = [&] {
        Command routes({"routes", "--session", session});
        std::string all;
        for (std::string line; !(line = routes.line()).empty();) all += line + "\n";
        BOOST_TEST(routes.wait() == 0);
        return all;
    };
    const std::string before = tables();
    BOOST_TEST(before.find("switch ") != std::string::npos);
    send_command(session, "lid-swap 0:softhca_0:1 1:softhca_0:1");
    const std::string after = tables();
    BOOST_TEST(after != before);
    BOOST_TEST(after.size() == before.size());
}

BOOST_AUTO_TEST_CASE(top_shows_a_running_session) {
    const std::string session = new_session();
    Command program = player(session, {"--fabric", "two-rail"});
    BOOST_TEST(program.ask("node") == "0");
    send_command(session, "link down node0 switch");
    Command top({"top", "--session", session, "--once", "--rows", "100"});
    std::string all;
    BOOST_TEST(top.wait() == 0);
    top.stop_listening();
    for (int lines = 0; lines < 12; ++lines) all += top.line() + "\n";
    BOOST_TEST(all.find("fabric two-rail: 1 processes") != std::string::npos, all);
    BOOST_TEST(all.find("DOWN") != std::string::npos, all);
}

BOOST_AUTO_TEST_CASE(fault_mistakes_are_named) {
    const FabricBlock fabric = load_fabric("four-path");
    const FabricImage& image = fabric.image();
    const auto message = [&](const std::string& line) -> std::string {
        try {
            parse_fault(image, split_words(line));
            return "";
        } catch (const FabricError& e) { return e.what(); }
    };
    for (const char* good :
         {"port down 0:softhca_0:1", "fault drop 1% 0:softhca_0:1", "drop 1 all", "rate 2 Gb/s all", "rate 2Gb/s all",
          "rate reset *:*:*", "delay 3us all --at-packet 4", "query stale 0:0", "command-cost reg 100us *:*",
          "node-death 1", "lid-swap 0:0:1 1:0:1", "clear", "drop 5 all --at-packet 10 --count 2"})
        BOOST_TEST_CONTEXT(good) BOOST_TEST(message(good).empty() == (std::strstr(good, "delay") == nullptr));
    BOOST_TEST(message("port sideways 0:softhca_0:1").find("down, up") != std::string::npos);
    BOOST_TEST(message("port down 99:softhca_0:1").find("99") != std::string::npos);
    BOOST_TEST(message("drop 101% all").find("0 to 100") != std::string::npos);
    BOOST_TEST(message("drop 1%").find("drop PERCENT TARGET") != std::string::npos);
    BOOST_TEST(message("port down 0:softhca_0:1 x").find("too much") != std::string::npos);
    BOOST_TEST(message("explode 1").find("not a fault") != std::string::npos);
    BOOST_TEST(message("drop 1% all --count 3").find("--at-packet") != std::string::npos);
    BOOST_TEST(message("delay 3 all").find("time") != std::string::npos);
    BOOST_TEST(message("query maybe 0:0").find("stale") != std::string::npos);
    BOOST_TEST(message("lid-swap 0:0:1 0:0:1").find("two ports of one subnet") != std::string::npos);
    BOOST_TEST(message("link down a b").find("a") != std::string::npos);

    const auto script = [&](const std::string& text, uint64_t seed = 1) {
        return parse_script(image, text, "f", seed);
    };
    const auto steps = script("# nothing\nat 2s port up 0:0:1\nat packet 5 drop 100% 0:0:1\n"
                              "random 3 from 1s to 3s for 10ms port down *:*:*\nevery 1s from 1s to 2s clear\n");
    BOOST_TEST(steps.size() == 1 + 1 + 6 + 2u);
    BOOST_TEST(steps[0].at == 0u);
    BOOST_TEST(steps[0].fault == "drop 100% 0:0:1 --at-packet 5");
    BOOST_TEST(std::is_sorted(steps.begin(), steps.end(), [](auto& x, auto& y) { return x.at < y.at; }));
    const auto text = [](const std::vector<ScriptStep>& all) {
        std::string t;
        for (const auto& s : all) t += std::to_string(s.at) + s.fault;
        return t;
    };
    const std::string random = "random 20 from 0s to 1s drop 5% *:*:*";
    BOOST_TEST(text(script(random, 1)) == text(script(random, 1)));
    BOOST_TEST(text(script(random, 1)) != text(script(random, 2)));
    for (const char* bad :
         {"at 2s\n", "when 2s clear\n", "at 2 clear\n", "at packet 0 drop 1% all\n", "every 0s from 0s to 1s clear\n",
          "random 0 from 0s to 1s drop 5% all\n", "random 2 from 0s to 1s clear\n"})
        BOOST_TEST_CONTEXT(bad) {
            try {
                script(std::string("\n") + bad);
                BOOST_TEST(false);
            } catch (const FabricError& e) { BOOST_TEST(std::string(e.what()).starts_with("f:2: ")); }
        }
}
