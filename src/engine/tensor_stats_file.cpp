#include "src/engine/tensor_stats_file.h"

#include <nlohmann/json.hpp>

#include "src/io/run_log.h"

namespace coda {

TensorStatsFile::TensorStatsFile(std::filesystem::path file, const nlohmann::json& header, Notice notice)
    : path_(std::move(file)), notice_(std::move(notice)) {
    std::filesystem::remove(aside_of(path_));
    file_.emplace(aside_of(path_), FileWriter::Mode::append);
    held_back_ =
        nlohmann::json{{"header", header}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    try {
        flush();
    } catch (const Error&) {
        std::error_code ignored;
        std::filesystem::remove(aside_of(path_), ignored);
        throw;
    }
}

TensorStatsFile::~TensorStatsFile() {
    try {
        finish();
    } catch (const std::exception&) {
        return;  // on the way out of a failure that is spoken of; the lines that were written are in FILE.new
    }
}

void TensorStatsFile::write(std::int64_t step, const std::vector<TensorRecord>& records) {
    for (const TensorRecord& record : records) {
        const TensorStats& stats = record.stats;
        const double zeros = static_cast<double>(stats.zeros) / static_cast<double>(stats.elements);
        held_back_ += text("{\"step\": ", step, ", \"layer\": ", record.layer, ", \"tensor\": \"", record.name,
                           "\", \"amax\": ", json_number(stats.amax), ", \"rms\": ", json_number(stats.rms()),
                           ", \"zeros\": ", json_number(zeros), ", \"row_peak\": ", json_number(stats.row_peak), "}\n");
    }
    try {
        flush();
        failing_ = false;
    } catch (const Error& error) {
        if (!std::exchange(failing_, true)) {
            notice_(text(error.what(), "; the tensors' statistics are held back until it can be done"));
        }
    }
}

void TensorStatsFile::flush() {
    try {
        file_->write(bytes_of(held_back_));
    } catch (const Error&) {
        file_->truncate(bytes_);  // a full disk may have taken part of a line
        throw;
    }
    bytes_ += static_cast<std::int64_t>(held_back_.size());
    held_back_.clear();
}

void TensorStatsFile::finish() {
    if (!file_) return;
    flush();
    file_->finish();
    file_.reset();
    rename_path(aside_of(path_), path_);
}

void TensorStatsRecorder::end_step() {
    if (step_) file_->write(*step_, watch_.take());
    step_.reset();
}

}  // namespace coda
