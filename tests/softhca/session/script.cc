#include "session/script.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <random>
#include <sstream>

#include "fabric/names.h"
#include "fabric/units.h"
#include "session/faults.h"

namespace softhca {

namespace {

using Words = std::vector<std::string>;

std::string join(const Words& words, size_t from) {
    std::string text;
    for (size_t i = from; i < words.size(); ++i) text += (i > from ? " " : "") + words[i];
    return text;
}

class ScriptParser {
public:
    ScriptParser(const FabricImage& image, uint64_t seed) : image_(image), random_(seed) {}

    void line(const Words& words) {
        const std::string& kind = words[0];
        if (kind == "at" && words.size() > 1 && words[1] == "packet")
            at_packet(words);
        else if (kind == "at")
            add(last_ = time(words, 1), words, 2);
        else if (kind == "after")
            add(last_ += time(words, 1), words, 2);
        else if (kind == "every")
            every(words);
        else if (kind == "random")
            random(words);
        else
            throw FabricError("'" + kind + "': a line starts with at, after, every or random");
    }

    std::vector<ScriptStep> take() {
        std::stable_sort(steps_.begin(), steps_.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
        return std::move(steps_);
    }

private:
    const std::string& word(const Words& words, size_t i) {
        if (i >= words.size()) throw FabricError("the line ends too early");
        return words[i];
    }
    void expect(const Words& words, size_t i, const char* text) {
        if (word(words, i) != text) throw FabricError("'" + words[i] + "': expected '" + text + "' here");
    }
    Nanos time(const Words& words, size_t i) {
        const auto t = parse_time_ns(word(words, i));
        if (!t || *t < 0) throw FabricError("'" + words[i] + "' is not " + allowed_time + " (written without a space)");
        return static_cast<Nanos>(*t);
    }
    uint64_t count(const Words& words, size_t i) {
        uint64_t n = 0;
        const std::string& text = word(words, i);
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
        if (error != std::errc{} || end != text.data() + text.size() || n == 0 || n > 1'000'000)
            throw FabricError("'" + text + "' is not a number from 1 to 1000000");
        return n;
    }
    FaultCommand check(const Words& words, size_t from) {
        (void)word(words, from);
        return parse_fault(image_, {words.begin() + static_cast<long>(from), words.end()});
    }
    void add(Nanos at, const Words& words, size_t from) {
        (void)check(words, from);
        steps_.push_back({at, join(words, from)});
    }
    void at_packet(const Words& words) {
        Words fault(words.begin() + static_cast<long>(std::min<size_t>(3, words.size())), words.end());
        const std::string n = std::to_string(count(words, 2));
        fault.insert(fault.end(), {"--at-packet", n});
        add(0, fault, 0);
    }
    void every(const Words& words) {
        expect(words, 2, "from");
        expect(words, 4, "to");
        const Nanos step = time(words, 1), from = time(words, 3), to = time(words, 5);
        if (step == 0 || to < from || (to - from) / step > 100'000)
            throw FabricError("from, to and distance don't fit");
        for (Nanos at = from; at <= to; at += step) add(at, words, 6);
    }
    void random(const Words& words);

    const FabricImage& image_;
    std::mt19937_64 random_; // its sequence is defined by the standard, distributions are not: they are done by hand
    Nanos last_ = 0;
    std::vector<ScriptStep> steps_;
};

// How one link is called in the fault language: "leaf1:13->spine2:1".
std::string link_target(const FabricImage& image, uint32_t link) {
    std::string name = link_name(image, link);
    const size_t arrow = name.find(" -> ");
    return name.substr(0, arrow) + "->" + name.substr(arrow + 4);
}

void ScriptParser::random(const Words& words) {
    expect(words, 2, "from");
    expect(words, 4, "to");
    const uint64_t times = count(words, 1);
    const Nanos from = time(words, 3), to = time(words, 5);
    if (to < from) throw FabricError("'to' is before 'from'");
    size_t first = 6;
    Nanos hold = 0;
    if (word(words, 6) == "for") {
        hold = time(words, 7);
        first = 8;
    }
    if (word(words, first) == "fault") ++first;
    const FaultCommand c = check(words, first);
    const std::string verb = words[first];
    // What stays of the line when the target is replaced by one of those that it matches.
    std::string head, end;
    switch (c.verb) {
    case FaultVerb::port_down:
        head = "port down", end = "port up";
        break;
    case FaultVerb::link_down:
        head = "link down", end = "link up";
        break;
    case FaultVerb::drop:
    case FaultVerb::corrupt:
    case FaultVerb::ack_drop:
    case FaultVerb::delay:
        head = verb + " " + words[first + 1], end = verb + " 0";
        break;
    case FaultVerb::rate: {
        const bool two = !parse_rate(words[first + 1]);
        head = verb + " " + words[first + 1] + (two ? " " + words[first + 2] : ""), end = "rate reset";
        break;
    }
    default:
        throw FabricError("'" + verb + "' can't be random: port down, link down, drop, corrupt, ack-drop, delay, rate");
    }
    for (uint64_t i = 0; i < times; ++i) {
        const Nanos at = from + random_() % (to - from + 1);
        std::string target;
        if (!c.ports.empty()) {
            target = port_name(image_, c.ports[random_() % c.ports.size()]);
        } else {
            target = link_target(image_, c.links[random_() % c.links.size()]);
            if (c.verb == FaultVerb::link_down) target.replace(target.find("->"), 2, " ");
        }
        steps_.push_back({at, head + " " + target});
        if (hold) steps_.push_back({at + hold, end + " " + target});
    }
}

} // namespace

std::vector<ScriptStep> parse_script(const FabricImage& image, const std::string& text, const std::string& file,
                                     uint64_t seed) {
    ScriptParser parser(image, seed);
    std::istringstream in(text);
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
        line.resize(std::min(line.size(), line.find('#')));
        const Words words = split_words(line);
        if (words.empty()) continue;
        try {
            parser.line(words);
        } catch (const FabricError& e) { throw FabricError(file + ":" + std::to_string(number) + ": " + e.what()); }
    }
    return parser.take();
}

std::vector<ScriptStep> load_script(const FabricImage& image, const std::string& file, uint64_t seed) {
    std::ifstream in(file);
    std::stringstream text;
    if (!in || !(text << in.rdbuf())) throw FabricError(file + ": can't be read, or is empty");
    return parse_script(image, text.str(), file, seed);
}

} // namespace softhca
