// `mp_info --check`: every assumption holds on a good adapter, and each is found broken by the nasty switch that breaks
// it.
#define BOOST_TEST_DYN_LINK
#define BOOST_TEST_MODULE check
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "fixture.h"

using namespace verbs_test;

namespace {

struct Output {
    int code = -1;
    std::string text;
    // "yes", "no" or "NO" of the first line of that check; empty: there is none.
    [[nodiscard]] std::string verdict(const std::string& check) const {
        const size_t at = text.find("  " + check);
        if (at == std::string::npos) return "";
        const size_t from = text.find_first_not_of(' ', at + 2 + std::max<size_t>(check.size(), 46));
        return text.substr(from, text.find(' ', from) - from);
    }
};

Output mp_info(const std::string& arguments) {
    const char* bin = std::getenv("MP_INFO_BIN");
    BOOST_REQUIRE(bin);
    Output out;
    FILE* pipe = popen((std::string(bin) + " " + arguments + " 2>&1").c_str(), "r");
    BOOST_REQUIRE(pipe);
    char block[4096];
    for (size_t n; (n = fread(block, 1, sizeof block, pipe)) > 0;) out.text.append(block, n);
    const int status = pclose(pipe);
    out.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    BOOST_TEST_MESSAGE(out.text);
    return out;
}

const std::string kHere = std::string(std::getenv("SOFTHCA_NODE") ? std::getenv("SOFTHCA_NODE") : "0") + ":*";

// With the fault: the check's verdict and the exit code; and not without it.
void breaks(const std::string& fault, const std::string& undo, const std::string& check, const std::string& verdict,
            int code, const std::string& rails = "") {
    BOOST_TEST_CONTEXT(fault) {
        Restore restore{{"fault " + undo + " " + kHere}};
        softhca("fault " + fault + " " + kHere);
        const Output out = mp_info("--check" + rails);
        BOOST_CHECK_EQUAL(out.verdict(check), verdict);
        BOOST_CHECK_EQUAL(out.code, code);
    }
}

const char* const kRead = "a read sees what its queue pair wrote before";
const char* const kLast = "the last word of a write is written last";
const char* const kWithin = "a message over another queue pair comes behind";
const char* const kAcross = "a message over another adapter comes behind";
const char* const kDc = "DC: a write and a send to a target";
const char* const kApm = "automatic path migration (APM)";
const char* const kPsn = "rq_psn is told truthfully";
const char* const kGrow = "completion queues grow";
const char* const kStamps = "completion time stamps";
const char* const kWaits = "queues that wait for data";

// Of TCP: nobody listens there. This test runs on two fabrics at a time.
std::string free_port() {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof any;
    BOOST_REQUIRE_EQUAL(bind(fd, reinterpret_cast<sockaddr*>(&any), size), 0);
    BOOST_REQUIRE_EQUAL(getsockname(fd, reinterpret_cast<sockaddr*>(&any), &size), 0);
    close(fd);
    return std::to_string(ntohs(any.sin_port));
}

bool has_two_ports() { // per adapter: a second route
    Adapter a(0);
    ibv_device_attr attributes{};
    BOOST_REQUIRE_EQUAL(ibv_query_device(a.context, &attributes), 0);
    return attributes.phys_port_cnt > 1;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_good_adapter) {
    const Output out = mp_info("--check");
    BOOST_CHECK_EQUAL(out.code, 0);
    for (const char* check : {kRead, kLast, kWithin, kAcross, kDc, kPsn, kGrow, kStamps, kWaits})
        BOOST_CHECK_EQUAL(out.verdict(check), "yes");
    BOOST_CHECK_EQUAL(out.verdict(kApm), has_two_ports() ? "yes" : "no");
}

BOOST_AUTO_TEST_CASE(packet_numbers) {
    breaks("query stale", "query truthful", kPsn, "no", 0);
    breaks("query refused", "query truthful", kPsn, "no", 0);
}

BOOST_AUTO_TEST_CASE(order) {
    breaks("place-delay-qp 20ms", "place-delay-qp 0", kWithin, "NO", 1);
    breaks("lacks write-order on", "lacks write-order off", kLast, "NO", 1);
    Restore restore{{"fault place-delay 0 " + kHere}};
    softhca("fault place-delay 2ms " + kHere);
    breaks("lacks read-push on", "lacks read-push off", kRead, "NO", 1);
}

BOOST_AUTO_TEST_CASE(one_adapter_late) { // not relied on
    Restore restore{{"fault place-delay 0 " + device_name(0)}};
    softhca("fault place-delay 2ms " + device_name(0));
    const Output out = mp_info("--check");
    BOOST_CHECK_EQUAL(out.verdict(kAcross), "no");
    BOOST_CHECK_EQUAL(out.verdict(kWithin), "yes");
    BOOST_CHECK_EQUAL(out.code, 0);
}

BOOST_AUTO_TEST_CASE(what_an_adapter_lacks) {
    breaks("lacks timestamps on", "lacks timestamps off", kStamps, "no", 0);
    breaks("lacks resize on", "lacks resize off", kGrow, "no", 0);
    breaks("lacks dc on", "lacks dc off", kDc, "no", 0);
    breaks("lacks apm on", "lacks apm off", kApm, "no", 0);
    breaks("lacks wait on", "lacks wait off", kWaits, "no", 0);
    Restore restore{{"fault lacks srq off " + kHere}};
    softhca("fault lacks srq on " + kHere);
    const Output out = mp_info("--check");
    BOOST_CHECK_EQUAL(out.code, 1);
    BOOST_CHECK(out.text.find("ibv_create_srq") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(between_two_hosts) {
    const std::string port = free_port();
    std::thread other([&] {
        BOOST_CHECK_EQUAL(std::system((std::string("SOFTHCA_NODE=1 ") + std::getenv("MP_INFO_BIN") +
                                       " --check --listen " + port + " >/dev/null")
                                          .c_str()),
                          0);
    });
    Output out;
    for (int attempt = 0; attempt < 50; ++attempt) {
        out = mp_info("--check 127.0.0.1:" + port);
        if (out.text.find("refused") == std::string::npos) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    other.join();
    BOOST_CHECK_EQUAL(out.code, 0);
    BOOST_CHECK_EQUAL(out.verdict(kWithin), "yes");
}

BOOST_AUTO_TEST_CASE(bad_input) {
    BOOST_CHECK_EQUAL(mp_info("--check --listen 0").code, 2);
    BOOST_CHECK_EQUAL(mp_info("--listen").code, 2);
    BOOST_CHECK_EQUAL(mp_info("--check somewhere --listen 18599").code, 2);
    BOOST_CHECK_EQUAL(mp_info("--check -a").code, 2);
    const Output nowhere = mp_info("--check no-such-host.invalid");
    BOOST_CHECK_EQUAL(nowhere.code, 1);
    BOOST_CHECK(nowhere.text.find("no-such-host.invalid") != std::string::npos);
    BOOST_CHECK_EQUAL(mp_info("--check --rails nothing:1").code, 1);
    BOOST_CHECK_EQUAL(mp_info("").code, 0);
}
