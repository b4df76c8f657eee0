#include "src/engine/gpu_presence.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

namespace coda {

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> entries(const fs::path& folder) {
    std::vector<fs::path> found;
    std::error_code error;
    fs::directory_iterator entry(folder, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) found.push_back(entry->path());
    std::sort(found.begin(), found.end());
    return found;
}

/// "nvidia0", not "nvidiactl" or "nvidia-uvm".
bool names_gpu(std::string_view node) {
    constexpr std::string_view kPrefix = "nvidia";
    return node.starts_with(kPrefix) && node.size() > kPrefix.size() &&
           std::all_of(node.begin() + kPrefix.size(), node.end(),
                       [](unsigned char letter) { return std::isdigit(letter) != 0; });
}

std::string first_word(const fs::path& file) {
    std::ifstream in(file);
    std::string word;
    in >> word;
    return word;
}

/// A VGA or 3D controller of NVIDIA's, not one of the other functions of its cards.
bool is_gpu(const fs::path& device) {
    const std::string kind = first_word(device / "class");
    return first_word(device / "vendor") == "0x10de" && (kind.starts_with("0x0300") || kind.starts_with("0x0302"));
}

}  // namespace

std::string nvidia_gpu_sign(const fs::path& root) {
    for (const fs::path& node : entries(root / "dev")) {
        if (names_gpu(node.filename().string())) return "/dev/" + node.filename().string();
    }
    for (const fs::path& device : entries(root / "sys/bus/pci/devices")) {
        if (is_gpu(device)) return "PCI device " + device.filename().string();
    }
    return {};
}

}  // namespace coda
