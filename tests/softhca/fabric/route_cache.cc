// The cache of subnet_manager.h: a text file per run, with a checksum over all of it.
#include "fabric/subnet_manager.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace softhca {
namespace fs = std::filesystem;
namespace {

constexpr const char* kFormat = "softhca-routes-1";

uint64_t fnv1a(const std::string& text, uint64_t state) {
    for (const unsigned char c : text) state = (state ^ c) * 0x100000001b3;
    return state;
}

std::string digest(const std::string& text) {
    char out[40];
    std::snprintf(out, sizeof out, "%016llx%016llx", static_cast<unsigned long long>(fnv1a(text, 0xcbf29ce484222325)),
                  static_cast<unsigned long long>(fnv1a(text, 0x9ae16a3b2f90404f)));
    return out;
}

fs::path cache_file(const std::string& key) {
    const char* cache = std::getenv("XDG_CACHE_HOME");
    const char* home = std::getenv("HOME");
    fs::path folder;
    if (cache && *cache == '/')
        folder = cache;
    else if (home && *home == '/')
        folder = fs::path(home) / ".cache";
    else
        return {};
    return folder / "softhca" / (key + ".routes");
}

std::string table_text(const std::vector<uint8_t>& table) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    text.reserve(2 * table.size());
    for (const uint8_t b : table) text += digits[b >> 4], text += digits[b & 15];
    return text;
}

} // namespace

std::string cache_key(const SubnetManagerPrograms& programs, const SubnetTask& task) {
    std::ostringstream all;
    all << kFormat << '\n'
        << programs.version << '\n'
        << task.engines << ' ' << task.lmc << ' ' << task.prefix << ' ' << task.attach_to << '\n';
    for (const auto& [guid, lid] : task.lids) all << guid << ' ' << lid << '\n';
    all << task.netlist;
    return digest(all.str());
}

bool read_cached_tables(const std::string& key, SubnetTables& tables) {
    std::ifstream in(cache_file(key));
    std::ostringstream content;
    if (!in || !(content << in.rdbuf())) return false;
    const std::string text = content.str();
    const size_t end = text.rfind("checksum ");
    if (end == std::string::npos || text.substr(end) != "checksum " + digest(text.substr(0, end)) + "\n") return false;
    std::istringstream lines(text.substr(0, end));
    std::string line;
    if (!std::getline(lines, line) || line != std::string(kFormat) + " " + key) return false;
    SubnetTables read;
    while (std::getline(lines, line)) { // the checksum vouches for the rest
        std::istringstream words(line);
        std::string kind, value;
        uint64_t guid = 0;
        words >> kind;
        if (kind == "sm_lid")
            words >> read.sm_lid;
        else if (kind == "engine")
            words >> read.engine;
        else if (kind == "warning")
            std::getline(words >> std::ws, read.warning);
        else if (kind == "lid" && words >> std::hex >> guid >> std::dec)
            words >> read.lids[guid];
        else if (kind == "table" && words >> std::hex >> guid >> value) {
            std::vector<uint8_t>& table = read.tables[guid];
            for (size_t i = 0; i + 1 < value.size(); i += 2)
                table.push_back(static_cast<uint8_t>(std::stoul(value.substr(i, 2), nullptr, 16)));
        }
    }
    tables = std::move(read);
    return true;
}

void write_cached_tables(const std::string& key, const SubnetTables& tables) {
    const fs::path file = cache_file(key);
    if (file.empty()) return;
    std::error_code failed;
    fs::create_directories(file.parent_path(), failed);
    std::ostringstream out;
    out << kFormat << ' ' << key << '\n' << "sm_lid " << tables.sm_lid << '\n' << "engine " << tables.engine << '\n';
    if (!tables.warning.empty()) out << "warning " << tables.warning << '\n';
    for (const auto& [guid, lid] : tables.lids) out << "lid " << std::hex << guid << ' ' << std::dec << lid << '\n';
    for (const auto& [guid, table] : tables.tables)
        out << "table " << std::hex << guid << ' ' << table_text(table) << '\n';
    const std::string text = out.str();
    // Written aside and renamed: a reader sees a whole file or none.
    const fs::path aside = file.string() + "." + std::to_string(getpid());
    std::ofstream stream(aside);
    const bool written = static_cast<bool>(stream << text << "checksum " << digest(text) << '\n');
    stream.close();
    if (written && stream)
        fs::rename(aside, file, failed);
    else
        fs::remove(aside, failed);
}

} // namespace softhca
