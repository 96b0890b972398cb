// Commands about a running session: what they break in it, now or by a script, and what they show of it.
#define BOOST_TEST_MODULE softhca_session_commands
#define BOOST_TEST_NO_MAIN
#include "session_command.h"

#include <algorithm>
#include <chrono>
#include <fstream>

#include "fabric/image_builder.h"
#include "session/faults.h"
#include "session/script.h"

using namespace softhca;

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

BOOST_AUTO_TEST_CASE(wait_is_over_when_all_machines_have_queue_pairs) {
    const std::string name = new_session();
    const auto waiting = [&](const char* machines, const char* timeout = "60") {
        return Command({"wait", "--session", name, "--machines", machines, "--timeout", timeout});
    };
    const auto run = [&](const char* node, std::vector<std::string> program) {
        std::vector<std::string> words{"run", "--session", name, "--fabric", "two-rail", "--node", node, "--"};
        words.insert(words.end(), program.begin(), program.end());
        return Command(words);
    };
    Command none = waiting("1", "0.2");
    BOOST_TEST(none.line() == "softhca: no such session has started in time (--timeout)");
    BOOST_TEST(none.wait() == 1);

    Command one = waiting("1"), two = waiting("2"); // before there is a session
    Command idle = run("0", {"sleep", "100"});      // has no queue pairs
    BOOST_REQUIRE(wait_until([&] { return keeper_of(name) > 0; }));
    BOOST_TEST(waiting("1", "0.2").line() == "softhca: programs of 0 machines have queue pairs, not of 1 (--timeout)");
    Command first = run("0", {"ibv_srq_pingpong", "-p", "0"}); // waits for its client
    BOOST_TEST(one.wait() == 0);
    Command same = run("0", {"ibv_srq_pingpong", "-p", "0"});
    BOOST_TEST(waiting("2", "0.2").line() == "softhca: programs of 1 machines have queue pairs, not of 2 (--timeout)");
    Command second = run("1", {"ibv_srq_pingpong", "-p", "0"});
    BOOST_TEST(two.wait() == 0);

    Command late = waiting("3");
    usleep(100'000);
    for (Command* program : {&idle, &first, &same, &second}) kill(-program->pid(), SIGKILL);
    BOOST_TEST(late.line() == "softhca: the session has ended");
    BOOST_TEST(late.wait() == 1);
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
