// softhca heatmap: a picture of link use over time, drawn by gnuplot.
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "cmd/commands.h"
#include "fabric/child_process.h"
#include "session/client.h"
#include "session/record.h"

namespace softhca {

namespace {

namespace fs = std::filesystem;

struct HeatmapArguments {
    std::string session, input, output;
    double duration = 10;
    uint32_t interval_ms = 20, columns = 200, rows = 60;
};

struct Series { // of one link
    uint64_t rate = 0;
    std::vector<std::pair<double, uint64_t>> bytes; // time, total
};
using Recording = std::map<std::string, Series>;

Recording read_csv(const std::string& file) {
    std::ifstream in(file);
    std::string line;
    if (!std::getline(in, line) || !line.starts_with("time_s,link,rate,bytes"))
        throw std::runtime_error(file + ":1: not a recording of `softhca run --record`");
    Recording recording;
    for (int number = 2; std::getline(in, line); ++number) {
        std::istringstream fields(line);
        std::string time, link, rate, bytes;
        if (!std::getline(fields, time, ',') || !std::getline(fields, link, ',') || !std::getline(fields, rate, ',') ||
            !std::getline(fields, bytes, ','))
            break; // the last line of a run that was killed
        Series& s = recording[link];
        s.rate = std::stoull(rate);
        s.bytes.emplace_back(std::stod(time), std::stoull(bytes));
    }
    return recording;
}

Recording sample_live(const HeatmapArguments& a) {
    Observer observer(choose_session(a.session));
    Carriers carriers(observer.seg());
    Recording recording;
    const Nanos start = monotonic_now();
    for (double t = 0; t <= a.duration; t = static_cast<double>(monotonic_now() - start) / 1e9) {
        for (size_t i = 0; i < carriers.count(); ++i) {
            Series& s = recording[carriers.name(i)];
            s.rate = carriers.rate(i);
            s.bytes.emplace_back(t, carriers.read(i).bytes);
        }
        if (observer.session_over()) break;
        usleep(a.interval_ms * 1000);
    }
    return recording;
}

// Bytes of each column (a stretch of time) from totals, evenly spread between two samples.
std::vector<double> spread(const Series& s, double end, uint32_t columns) {
    std::vector<double> sum(columns, 0.0);
    const double width = end / columns;
    for (size_t i = 1; i < s.bytes.size(); ++i) {
        const auto [t0, b0] = s.bytes[i - 1];
        const auto [t1, b1] = s.bytes[i];
        if (t1 <= t0 || b1 <= b0) continue;
        for (auto c = static_cast<uint32_t>(t0 / width); c < columns && c * width < t1; ++c) {
            const double overlap = std::min(t1, (c + 1) * width) - std::max(t0, c * width);
            if (overlap > 0) sum[c] += static_cast<double>(b1 - b0) * overlap / (t1 - t0);
        }
    }
    return sum;
}

void draw(const HeatmapArguments& a, const Recording& recording) {
    double end = 0;
    for (const auto& [name, s] : recording)
        if (!s.bytes.empty()) end = std::max(end, s.bytes.back().first);
    // The busiest links; in percent of their rate if all of these have one.
    std::vector<std::pair<uint64_t, std::string>> order;
    for (const auto& [name, s] : recording)
        if (const uint64_t moved = s.bytes.empty() ? 0 : s.bytes.back().second - s.bytes.front().second)
            order.emplace_back(moved, name);
    if (order.empty() || end <= 0)
        throw std::runtime_error("no link has carried anything (an ideal, undisturbed fabric does not count)");
    std::sort(order.rbegin(), order.rend());
    order.resize(std::min<size_t>(order.size(), a.rows));
    const bool percent =
        std::all_of(order.begin(), order.end(), [&](const auto& o) { return recording.at(o.second).rate != 0; });
    std::sort(order.begin(), order.end(), [](const auto& x, const auto& y) { return x.second > y.second; });

    const ScratchFolder folder;
    std::ofstream data(folder.path() / "matrix"), script(folder.path() / "script");
    std::string names;
    const double width = end / a.columns;
    for (size_t row = 0; row < order.size(); ++row) {
        const Series& s = recording.at(order[row].second);
        for (double bytes : spread(s, end, a.columns))
            data << (percent ? 100 * bytes / width / static_cast<double>(s.rate) : bytes / width / 1e6) << ' ';
        data << '\n';
        names += (row ? ", " : "") + ("\"" + order[row].second + "\" " + std::to_string(row));
    }
    const fs::path output = fs::absolute(a.output);
    const size_t height = 160 + 16 * order.size();
    script << "set terminal " << (output.extension() == ".png" ? "pngcairo" : "svg") << " size 1000," << height
           << " font 'sans,10' noenhanced\nset output '" << output.string() << "'\nset xlabel 'time (s)'\nset cblabel '"
           << (percent ? "use of the link (%)" : "MB/s") << "'\nset cbrange [0:" << (percent ? "100" : "*")
           << "]\nset palette defined (0 '#f7f7f7', 0.25 '#fddbc7', 0.5 '#f4a582', 0.75 '#d6604d', 1 '#67001f')\n"
           << "set xrange [0:" << end << "]\nset yrange [-0.5:" << order.size() << "-0.5]\nset ytics (" << names
           << ")\nplot 'matrix' matrix using (($1+0.5)*" << width << "):2:3 with image notitle\n";
    data.close();
    script.close();
    const auto gnuplot = find_program("gnuplot");
    if (!gnuplot) throw std::runtime_error("gnuplot is not installed (package gnuplot-nox)");
    ChildProcess child({gnuplot->string(), "script"}, {"PATH=/usr/bin:/bin", "HOME=" + folder.path().string()},
                       folder.path(), folder.path() / "log");
    const auto status = child.wait_until(std::chrono::steady_clock::now() + std::chrono::seconds(60));
    if (status && *status == 0) return;
    std::ifstream log(folder.path() / "log");
    std::string line, text;
    while (std::getline(log, line))
        if (!line.empty()) text = line;
    throw std::runtime_error("gnuplot: " + (status ? text : "does not end"));
}

} // namespace

void add_heatmap_command(CLI::App& app) {
    auto a = std::make_shared<HeatmapArguments>();
    CLI::App* c = app.add_subcommand("heatmap", "Draw link use over time, as SVG or PNG");
    c->add_option("-o,--output", a->output, "FILE.svg or FILE.png")->required()->check([](const std::string& f) {
        return std::string(f.ends_with(".svg") || f.ends_with(".png") ? "" : "must end with .svg or .png");
    });
    auto* input =
        c->add_option("--input", a->input, "Recording of `softhca run --record` (default: watch a live session)")
            ->check(CLI::ExistingFile);
    c->add_option("--session", a->session, "Which session (default: $SOFTHCA_SESSION, else the only one running)")
        ->excludes(input);
    c->add_option("--duration", a->duration, "Seconds to watch, or until the session ends")->capture_default_str();
    c->add_option("--interval", a->interval_ms, "Milliseconds between samples")
        ->check(CLI::Range(1, 60000))
        ->capture_default_str();
    c->add_option("--columns", a->columns, "Resolution in time")->check(CLI::Range(2, 5000))->capture_default_str();
    c->add_option("--rows", a->rows, "Links shown: the busiest")->check(CLI::Range(1, 2000))->capture_default_str();
    c->callback([a] { draw(*a, a->input.empty() ? sample_live(*a) : read_csv(a->input)); });
}

} // namespace softhca
