#include "src/io/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "src/core/utc_time.h"
#include "src/io/files.h"

namespace coda {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kLockFile = "lock";

std::string host_name() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string holder_record(const std::string& command) {
    const json record = {{"pid", ::getpid()}, {"host", host_name()}, {"started", utc_now()}, {"command", command}};
    return record.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

/// "process 4711 on node7, since ..., started as: ...", from the lock file's contents.
std::string holder_text(const std::string& contents) {
    const json record = json::parse(contents, nullptr, /*allow_exceptions=*/false);
    const auto field = [&](const char* name) {
        if (!record.is_object() || !record.contains(name)) return std::string("?");
        return record[name].is_string() ? record[name].get<std::string>() : record[name].dump();
    };
    return text("process ", field("pid"), " on ", field("host"), ", since ", field("started"),
                ", started as: ", field("command"));
}

/// Everything from the start of the file.
std::string contents_of(int descriptor) {
    std::string contents(4096, '\0');
    const ssize_t size = ::pread(descriptor, contents.data(), contents.size(), 0);
    contents.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return contents;
}

/// The outermost folder of `path` that does not exist; empty when all do.
fs::path first_missing(const fs::path& path) {
    fs::path missing;
    std::error_code ignored;
    for (fs::path at = fs::absolute(path); !fs::exists(at, ignored) && at.has_relative_path(); at = at.parent_path()) {
        missing = at;
    }
    return missing;
}

void write_holder(int descriptor, const fs::path& file, const std::string& command) {
    const std::string record = holder_record(command);
    const bool written = ::ftruncate(descriptor, 0) == 0 &&
                         ::pwrite(descriptor, record.data(), record.size(), 0) == static_cast<ssize_t>(record.size());
    // On a full disk the lock holds without its holder's name.
    if (!written && errno != ENOSPC && errno != EDQUOT) throw_errno("write to", file, errno);
}

}  // namespace

RunLock::RunLock(fs::path run, std::string command) : run_(std::move(run)), command_(std::move(command)) {
    made_ = first_missing(run_);
    acquire();
}

RunLock::~RunLock() {
    release();
    std::error_code ignored;
    if (made_.empty()) return;
    const fs::path outer = made_.parent_path();
    for (fs::path at = fs::absolute(run_); at != outer && fs::remove(at, ignored); at = at.parent_path()) {
    }
}

void RunLock::acquire() {
    const fs::path file = run_ / kLockFile;
    make_folders(run_);
    // The holder removes the file when it ends: a lock on a file that is no longer there holds nothing.
    while (true) {
        const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (descriptor < 0) throw_errno("create", file, errno);
        if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
            const int error = errno;
            const std::string holder = contents_of(descriptor);
            ::close(descriptor);
            require(error != EWOULDBLOCK, "output.directory: ", run_.string(), " is in use by ", holder_text(holder),
                    "; wait until it ends, stop it, or choose another output.directory");
            return;  // this file system has no locks
        }
        if (leads_to(file, descriptor)) {
            descriptor_ = descriptor;
            write_holder(descriptor, file, command_);
            return;
        }
        ::close(descriptor);
    }
}

void RunLock::release() {
    if (descriptor_ < 0) return;
    const fs::path file = run_ / kLockFile;
    if (leads_to(file, descriptor_)) ::unlink(file.c_str());
    ::close(std::exchange(descriptor_, -1));
}

bool RunLock::intact() const {
    std::error_code ignored;
    return held() ? leads_to(run_ / kLockFile, descriptor_) : fs::is_directory(run_, ignored);
}

void RunLock::renew() {
    release();
    acquire();
}

}  // namespace coda
