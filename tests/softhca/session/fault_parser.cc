#include <algorithm>
#include <charconv>
#include <optional>

#include "fabric/names.h"
#include "fabric/units.h"
#include "session/faults.h"

namespace softhca {

namespace {

using Words = std::vector<std::string>;

[[noreturn]] void fail(const std::string& text) { throw FabricError(text); }

uint64_t number(const std::string& text, const char* what) {
    uint64_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (text.empty() || error != std::errc{} || end != text.data() + text.size() || n == 0)
        fail("'" + text + "' is not " + what + " (a number from 1)");
    return n;
}

uint64_t percent_to_ppm(const std::string& text) {
    std::string t = text;
    if (t.ends_with('%')) t.pop_back();
    double p = -1;
    const auto [end, error] = std::from_chars(t.data(), t.data() + t.size(), p);
    if (t.empty() || error != std::errc{} || end != t.data() + t.size() || !(p >= 0 && p <= 100))
        fail("'" + text + "' is not a percentage: 0 to 100, e.g. 0.1");
    return static_cast<uint64_t>(p * 10000 + 0.5);
}

uint64_t time_ns(const std::string& text) {
    const auto t = parse_time_ns(text);
    if (!t || *t < 0 || *t > UINT32_MAX) fail("'" + text + "' is not " + allowed_time + " (at most 4 s)");
    return static_cast<uint64_t>(*t);
}

uint64_t one_of(const std::string& text, const Words& allowed) {
    for (size_t i = 0; i < allowed.size(); ++i)
        if (text == allowed[i]) return i;
    std::string list;
    for (const auto& a : allowed) list += (list.empty() ? "" : ", ") + a;
    fail("'" + text + "': allowed here: " + list);
}

Words parts_of(const std::string& text) {
    Words parts(1);
    for (char c : text) {
        if (c == ':')
            parts.emplace_back();
        else
            parts.back() += c;
    }
    return parts;
}

std::vector<uint16_t> pkeys(const std::string& text) {
    std::vector<uint16_t> keys;
    for (size_t at = 0; at <= text.size();) {
        const size_t end = std::min(text.find(',', at), text.size());
        const auto key = parse_pkey(text.substr(at, end - at));
        if (!key || keys.size() == kMaxPkeys)
            fail("'" + text + "' is not a list of 1 to " + std::to_string(kMaxPkeys) + " keys: each " + allowed_pkey);
        keys.push_back(*key);
        at = end + 1;
    }
    return keys;
}

bool node_matches(const FabricImage& image, uint32_t node, const std::string& text) {
    return text == "*" || text == image.node(node).name || text == std::to_string(node);
}

std::vector<uint32_t> match_nodes(const FabricImage& image, const std::string& text) {
    std::vector<uint32_t> found;
    for (uint32_t n = 0; n < image.nodes; ++n)
        if (text == "all" || node_matches(image, n, text)) found.push_back(n);
    if (found.empty())
        fail("'" + text + "' is not a node of fabric '" + image.name + "': 0 to " + std::to_string(image.nodes - 1) +
             " or " + image.node(0).name + " ... " + image.node(image.nodes - 1).name);
    return found;
}

std::vector<uint32_t> match_devices(const FabricImage& image, const std::string& text) {
    Words parts = text == "all" ? Words{"*", "*"} : parts_of(text);
    std::vector<uint32_t> found;
    if (parts.size() == 2)
        for (uint32_t d = 0; d < image.devices; ++d) {
            const DeviceImage& device = image.device(d);
            const std::string index = std::to_string(device.index);
            if (node_matches(image, device.node, parts[0]) &&
                (parts[1] == "*" || parts[1] == index || parts[1] == "softhca_" + index))
                found.push_back(d);
        }
    if (found.empty())
        fail("'" + text + "' is not a device NODE:DEVICE of fabric '" + image.name + "', e.g. 0:softhca_0");
    return found;
}

std::vector<uint32_t> match_ports(const FabricImage& image, const std::string& text) {
    if (text != "all" && text.find('*') == std::string::npos) return {find_port(image, text)};
    const Words parts = text == "all" ? Words{"*", "*", "*"} : parts_of(text);
    std::vector<uint32_t> found;
    if (parts.size() == 3)
        for (uint32_t d : match_devices(image, parts[0] + ":" + parts[1])) {
            const DeviceImage& device = image.device(d);
            for (uint32_t i = 0; i < device.ports; ++i)
                if (parts[2] == "*" || parts[2] == std::to_string(i + 1)) found.push_back(device.first_port + i);
        }
    if (found.empty()) fail("'" + text + "' names no port NODE:DEVICE:PORT of fabric '" + image.name + "'");
    return found;
}

// Does the link start at the end that the user calls `name`?
bool starts_at(const FabricImage& image, const LinkImage& link, const std::string& name) {
    const Words parts = parts_of(name);
    if (const uint32_t s = find_switch(image, parts[0]); s != kNone)
        return link.from_kind == EndKind::sw && link.from == s &&
               (parts.size() < 2 || parts[1] == std::to_string(link.from_port));
    if (link.from_kind != EndKind::port) return false;
    const DeviceImage& device = image.device(image.port(link.from).device);
    return node_matches(image, device.node, parts[0]) && (parts.size() < 2 || find_port(image, name) == link.from);
}

std::vector<uint32_t> match_links(const FabricImage& image, const std::string& a, const std::string& b, bool both) {
    const std::vector<uint32_t> cables = find_cables(image, a, b);
    std::vector<uint32_t> links;
    for (uint32_t l = 0; l < image.links; ++l)
        if (std::find(cables.begin(), cables.end(), image.link(l).cable) != cables.end() &&
            (both || starts_at(image, image.link(l), a)))
            links.push_back(l);
    return links;
}

// Takes words off the front, with a message about the command's form when there are too few.
class Reader {
public:
    Reader(const Words& words, std::string form) : words_(words), form_(std::move(form)) {}
    const std::string& next() {
        if (at_ == words_.size()) fail("too few words; the form is: " + form_);
        return words_[at_++];
    }
    size_t left() const { return words_.size() - at_; }
    void end() const {
        if (at_ != words_.size()) fail("'" + words_[at_] + "' is too much; the form is: " + form_);
    }

private:
    const Words& words_;
    std::string form_;
    size_t at_ = 0;
};

void read_target(const FabricImage& image, Reader& in, FaultCommand& c) {
    const std::string first = in.next();
    if (const size_t arrow = first.find("->"); arrow != std::string::npos)
        c.links = match_links(image, first.substr(0, arrow), first.substr(arrow + 2), false);
    else if (in.left() > 0)
        c.links = match_links(image, first, in.next(), true);
    else
        c.ports = match_ports(image, first);
}

struct Form {
    const char* word;
    FaultVerb verb;
    const char* form;
};
const Form kForms[] = {
    {"drop", FaultVerb::drop, "drop PERCENT TARGET"},
    {"corrupt", FaultVerb::corrupt, "corrupt PERCENT TARGET"},
    {"ack-drop", FaultVerb::ack_drop, "ack-drop PERCENT TARGET"},
    {"delay", FaultVerb::delay, "delay TIME TARGET"},
    {"rate", FaultVerb::rate, "rate RATE|reset TARGET"},
    {"adapter-death", FaultVerb::adapter_death, "adapter-death NODE:DEVICE"},
    {"adapter-revive", FaultVerb::adapter_revive, "adapter-revive NODE:DEVICE"},
    {"node-death", FaultVerb::node_death, "node-death NODE"},
    {"stop", FaultVerb::stop, "stop NODE"},
    {"cont", FaultVerb::cont, "cont NODE"},
    {"place-delay", FaultVerb::place_delay, "place-delay TIME NODE:DEVICE"},
    {"place-delay-qp", FaultVerb::place_delay_qp, "place-delay-qp TIME NODE:DEVICE"},
    {"flush-accepted", FaultVerb::flush_accepted, "flush-accepted on|off NODE:DEVICE"},
    {"wait-prefetch", FaultVerb::wait_prefetch, "wait-prefetch on|off NODE:DEVICE"},
    {"wait-endian", FaultVerb::wait_endian, "wait-endian on|off NODE:DEVICE"},
    {"query", FaultVerb::query, "query truthful|stale|refused NODE:DEVICE"},
    {"lacks", FaultVerb::lacks, "lacks dc|timestamps|apm|resize|srq|read-push|write-order|wait on|off NODE:DEVICE"},
    {"loopback-fails", FaultVerb::loopback_fails, "loopback-fails on|off NODE:DEVICE:PORT"},
    {"address-handles", FaultVerb::address_handles, "address-handles refused|granted NODE:DEVICE:PORT"},
    {"queue-pairs", FaultVerb::queue_pairs, "queue-pairs refused|granted NODE:DEVICE:PORT"},
    {"queue-pair-limit", FaultVerb::queue_pair_limit, "queue-pair-limit N|none NODE:DEVICE"},
    {"command-cost", FaultVerb::command_cost, "command-cost create|modify|query|reg|destroy TIME|reset NODE:DEVICE"},
    {"lid-swap", FaultVerb::lid_swap, "lid-swap NODE:DEVICE:PORT NODE:DEVICE:PORT"},
    {"pkeys", FaultVerb::pkeys, "pkeys KEY[,KEY...] NODE:DEVICE:PORT"},
    {"clear", FaultVerb::clear, "clear"},
    {"reroute", FaultVerb::reroute, "reroute"},
};

void read_arguments(const FabricImage& image, Reader& in, FaultCommand& c) {
    switch (c.verb) {
    case FaultVerb::port_down:
    case FaultVerb::port_up:
        c.ports = match_ports(image, in.next());
        break;
    case FaultVerb::link_down:
    case FaultVerb::link_up: {
        const std::string a = in.next();
        c.links = match_links(image, a, in.next(), true);
        break;
    }
    case FaultVerb::drop:
    case FaultVerb::corrupt:
    case FaultVerb::ack_drop:
        c.value = percent_to_ppm(in.next());
        read_target(image, in, c);
        break;
    case FaultVerb::delay:
        c.value = time_ns(in.next());
        read_target(image, in, c);
        break;
    case FaultVerb::rate: {
        std::string text = in.next();
        if (text != "reset") {
            // "8 Gb/s" and "DDR 4x" may be two words.
            auto rate = parse_rate(text);
            if (!rate && in.left() > 1) rate = parse_rate(text += " " + in.next());
            if (!rate) fail("'" + text + "' is not " + allowed_rate + ", or reset");
            c.value = text == "unlimited" ? UINT64_MAX / 16 : rate->bytes_per_second; // 0 means "as in the file"
        }
        read_target(image, in, c);
        break;
    }
    case FaultVerb::adapter_death:
    case FaultVerb::adapter_revive:
        c.devices = match_devices(image, in.next());
        break;
    case FaultVerb::node_death:
    case FaultVerb::stop:
    case FaultVerb::cont:
        c.nodes = match_nodes(image, in.next());
        break;
    case FaultVerb::place_delay:
    case FaultVerb::place_delay_qp:
        c.value = time_ns(in.next());
        c.devices = match_devices(image, in.next());
        break;
    case FaultVerb::flush_accepted:
    case FaultVerb::wait_prefetch:
    case FaultVerb::wait_endian:
        c.value = one_of(in.next(), {"off", "on"});
        c.devices = match_devices(image, in.next());
        break;
    case FaultVerb::query:
        c.value = one_of(in.next(), {"truthful", "stale", "refused"});
        c.devices = match_devices(image, in.next());
        break;
    case FaultVerb::lacks:
        c.which = static_cast<uint32_t>(
            one_of(in.next(), {"dc", "timestamps", "apm", "resize", "srq", "read-push", "write-order", "wait"}));
        c.value = one_of(in.next(), {"off", "on"});
        c.devices = match_devices(image, in.next());
        break;
    case FaultVerb::loopback_fails:
        c.value = one_of(in.next(), {"off", "on"});
        c.ports = match_ports(image, in.next());
        break;
    case FaultVerb::address_handles:
    case FaultVerb::queue_pairs:
        c.value = one_of(in.next(), {"granted", "refused"});
        c.ports = match_ports(image, in.next());
        break;
    case FaultVerb::queue_pair_limit: {
        const std::string limit = in.next();
        c.value = limit == "none" ? 0 : std::min<uint64_t>(number(limit, "a number of queue pairs, or none"), kNone);
        c.devices = match_devices(image, in.next());
        break;
    }
    case FaultVerb::command_cost: {
        c.which = static_cast<uint32_t>(one_of(in.next(), {"create", "modify", "query", "reg", "destroy"}));
        const std::string cost = in.next();
        c.value = cost == "reset" ? kNone : time_ns(cost);
        c.devices = match_devices(image, in.next());
        break;
    }
    case FaultVerb::lid_swap: {
        const std::string a = in.next(), b = in.next();
        c.ports = {find_port(image, a), find_port(image, b)};
        const PortImage &pa = image.port(c.ports[0]), &pb = image.port(c.ports[1]);
        if (c.ports[0] == c.ports[1] || pa.subnet == kNone || pa.subnet != pb.subnet || pa.lmc != pb.lmc || !pa.lid ||
            !pb.lid)
            fail("'" + a + "' and '" + b + "' are not two ports of one subnet with LIDs");
        break;
    }
    case FaultVerb::pkeys:
        c.keys = pkeys(in.next());
        c.ports = match_ports(image, in.next());
        break;
    case FaultVerb::clear:
    case FaultVerb::reroute:
        break;
    }
}

} // namespace

std::vector<std::string> split_words(const std::string& line) {
    Words words;
    std::string word;
    for (char c : line + " ") {
        if (c == ' ' || c == '\t' || c == '\r') {
            if (!word.empty()) words.push_back(word);
            word.clear();
        } else {
            word += c;
        }
    }
    return words;
}

FaultCommand parse_fault(const FabricImage& image, const Words& given) {
    FaultCommand c;
    Words words;
    bool counted = false;
    for (size_t i = 0; i < given.size(); ++i) {
        c.text += (i ? " " : "") + given[i];
        const bool at = given[i] == "--at-packet", count = given[i] == "--count";
        if (!at && !count) {
            words.push_back(given[i]);
            continue;
        }
        if (i + 1 == given.size()) fail(given[i] + " needs a number");
        c.text += " " + given[i + 1];
        const uint64_t n = number(given[++i], at ? "a packet number" : "a number of packets");
        if (at)
            c.at_packet = n;
        else
            c.count = static_cast<uint32_t>(std::min<uint64_t>(n, UINT32_MAX));
        counted |= count;
    }
    if (!words.empty() && words[0] == "fault") words.erase(words.begin());
    if (words.empty()) fail("a fault is missing");
    const std::string verb = words[0];
    std::string form, all = "port, link";
    if (verb == "port" || verb == "link") {
        form = verb == "port" ? "port down|up NODE:DEVICE:PORT" : "link down|up A B";
        if (words.size() < 2) fail("too few words; the form is: " + form);
        const bool up = one_of(words[1], {"down", "up"}) == 1;
        c.verb = verb == "port" ? (up ? FaultVerb::port_up : FaultVerb::port_down)
                                : (up ? FaultVerb::link_up : FaultVerb::link_down);
        words.erase(words.begin());
    } else {
        for (const Form& f : kForms) {
            all += std::string(", ") + f.word;
            if (verb != f.word) continue;
            c.verb = f.verb;
            form = f.form;
        }
        if (form.empty()) fail("'" + verb + "' is not a fault: " + all);
    }
    words.erase(words.begin());
    const bool can_trip = c.verb <= FaultVerb::ack_drop && c.verb != FaultVerb::port_up && c.verb != FaultVerb::link_up;
    if (counted && !c.at_packet) fail("--count says how many packets --at-packet affects, which is missing");
    if (c.at_packet && !can_trip) fail("--at-packet goes with drop, corrupt, ack-drop, port down and link down only");
    Reader in(words, form);
    read_arguments(image, in, c);
    in.end();
    return c;
}

} // namespace softhca
