#include "src/train/resume_check.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "src/config/codec.h"
#include "src/config/retired.h"
#include "src/core/errors.h"
#include "src/io/data_fingerprint.h"

namespace coda {

namespace {

/// "a", "a and b", "a, b and 7 more".
std::string list_text(const std::vector<std::string>& names) {
    std::string list = names.front();
    if (names.size() == 2) list += " and " + names[1];
    if (names.size() > 2) list += text(", ", names[1], " and ", names.size() - 2, " more");
    return list;
}

void check_data(const char* what, const nlohmann::json& before, const nlohmann::json& now, bool allowed,
                Console& console) {
    const DataChanges changes = compare_data(before, now);
    if (!changes.changed.empty()) {
        const std::string said = text("data.", what, " has changed since the checkpoint: ", list_text(changes.changed));
        if (!allowed) {
            throw UsageError(text("--resume: ", said, "; restore what it was, or continue with --allow changed-data"));
        }
        console.line("note: " + said);
    }
    if (!changes.added.empty()) console.line(text("note: data.", what, " has new files: ", list_text(changes.added)));
    if (!changes.removed.empty()) {
        console.line(text("note: data.", what, " is without ", list_text(changes.removed)));
    }
}

}  // namespace

std::string precision_text(const PrecisionConfig& precision, DType storage) {
    if (!precision.has_fp8) return name_of(storage);
    const nlohmann::json usual = Codec<PrecisionConfig>::write(PrecisionConfig::fp8());
    const nlohmann::json all = Codec<PrecisionConfig>::write(precision);
    nlohmann::json other = nlohmann::json::object();
    for (const auto& [name, value] : all.items()) {
        if (name != "count_interval" && value != usual.at(name)) other[name] = value;  // counting changes no bit
    }
    return other.empty() ? "fp8" : "fp8 " + other.dump();
}

namespace {

/// How to get a precision_text again, after "--allow other-device": by a flag, unless a part of it is retired. A CPU
/// stores f32 where no GEMM takes FP8.
std::string other_way(const std::string& precision) {
    constexpr std::string_view kOther = "fp8 ";
    if (!precision.starts_with(kOther)) {
        return text(", or take the same with --precision ", precision == "fp8" ? "fp8" : "bf16");
    }
    const std::string object = precision.substr(kOther.size());
    const std::vector<const RetiredKey*> retired = retired_choices(nlohmann::json::parse(object, nullptr, false));
    if (retired.empty()) return text(", or take the same with --precision '", object, "'");
    return text("; ", retired.front()->path, " is gone: ", retired.front()->reason);
}

}  // namespace

void check_identity(const RunIdentity& now, const nlohmann::json& state, const ResumePermissions& allow,
                    Console& console) {
    const auto before = state.find("identity");
    if (before == state.end()) return;
    for (const auto& [name, value] : {std::pair("device", &now.device), std::pair("precision", &now.precision)}) {
        const auto was = before->at(name).get<std::string>();
        if (was == *value) continue;
        const std::string said = text("the checkpoint's ", name, " is ", was, ", and this run's is ", *value);
        if (!allow.other_device) {
            throw UsageError(text(
                "--resume: ", said, ", which gives other bits from there on; continue with ", "--allow other-device",
                name == std::string_view("device") ? ", or take the same with --device" : other_way(was)));
        }
        console.line("note: " + said);
    }
    for (const char* part : {"train", "validation"}) {
        check_data(part[0] == 't' ? "train" : "val", before->at("data").at(part), now.data.at(part), allow.changed_data,
                   console);
    }
}

void require_same_inputs(const Ranks& ranks, const RunIdentity& identity, std::int64_t step,
                         const std::string& directory) {
    const std::vector<std::string> data = ranks.share_text(identity.data.dump());
    for (std::size_t rank = 1; rank < data.size(); ++rank) {
        if (data[rank] == data[0]) continue;
        ranks.stop<Error>(text("rank ", rank,
                               " reads other data than rank 0: data.train and data.val must be the same "
                               "files for all ranks"));
    }
    const std::vector<Ranks::Message> steps = ranks.share({.number = step, .text = {}});
    for (std::size_t rank = 1; rank < steps.size(); ++rank) {
        if (steps[rank].number == steps[0].number) continue;
        ranks.stop<Error>(text("the newest checkpoint in ", directory, " is of step ", steps[0].number,
                               " for rank 0 and of step ", steps[rank].number, " for rank ", rank,
                               " (0: there is none): all ranks need the same output.directory, on a file system that "
                               "they share"));
    }
}

}  // namespace coda
