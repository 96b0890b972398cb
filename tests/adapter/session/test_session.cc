// Sessions of programs: who joins, who leaves, and a keeper that cleans up, whoever is killed.
#define BOOST_TEST_MODULE softhca_session
#define BOOST_TEST_NO_MAIN
#include "session_command.h"

#include <algorithm>

using namespace softhca;

namespace {

bool runs(const std::string& session) {
    const auto names = running_sessions();
    return std::find(names.begin(), names.end(), session) != names.end();
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

} // namespace

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

BOOST_AUTO_TEST_CASE(ranks_are_placed) {
    const std::string name = new_session();
    const auto rank = [&](const char* number, const std::vector<std::string>& options) {
        std::vector<std::string> words{"run", "--session", name};
        words.insert(words.end(), options.begin(), options.end());
        words.insert(words.end(), {"--", "env", std::string("PMI_RANK=") + number, self(), "--play"});
        return Command(words);
    };
    BOOST_TEST(rank("1", {"--place", "0,4,1,5"}).ask("node") == "4");
    BOOST_TEST(rank("3", {"--place", "0,4,1,node7"}).ask("node") == "7");
    BOOST_TEST(rank("3", {}).ask("node") == "3");
    setenv(kNodeEnv, "9", 1), setenv(kPlaceEnv, "8,8,8,8", 1); // what is said goes before what is inherited
    BOOST_TEST(rank("1", {"--place", "0,4,1,5"}).ask("node") == "4");
    BOOST_TEST(rank("1", {"--node", "6"}).ask("node") == "6");
    unsetenv(kNodeEnv);
    BOOST_TEST(rank("1", {}).ask("node") == "8");
    unsetenv(kPlaceEnv);
    Command over = rank("2", {"--place", "0,4"});
    BOOST_TEST(over.ask("node") == "softhca: SOFTHCA_PLACE=0,4: no node for rank 2; one for every rank is needed");
    BOOST_TEST(over.line() == std::to_string(kNone));
    const std::string nodes = "fabric 'ideal-2rail' has nodes 0 to 255 (or their names)";
    const auto refused = [&](const std::vector<std::string>& options, const std::string& line) {
        Command bad = rank("0", options);
        BOOST_TEST(bad.line() == line);
        BOOST_TEST(bad.line() == "");
        BOOST_TEST(bad.wait() == 1);
    };
    refused({"--place", "0,256"}, "softhca: --place 0,256: '256' is no node: " + nodes);
    refused({"--place", "0,,1"}, "softhca: --place 0,,1: '' is no node: " + nodes);
    refused({"--node", "nowhere"}, "softhca: --node nowhere: " + nodes);
    Command both = rank("0", {"--node", "1", "--place", "0,1"}); // by the parser of options
    BOOST_TEST(both.line() == "--node excludes --place");
    BOOST_TEST(both.wait() != 0);
    BOOST_TEST(Command({"run", "--place", "", "--", "true"}).wait() != 0);
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
    BOOST_TEST(
        wait_until([&] { return holders_of(name) == 0; })); // while one is still dying a command takes the session over
    Command ls({"ls"});
    for (std::string line; !(line = ls.line()).empty();) BOOST_TEST(line.find(name) == std::string::npos);
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
        const std::string words =
            "softhca: session '" + name + "' had lost its keeper: a new one cleans up after 1 dead process, 2 live";
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
