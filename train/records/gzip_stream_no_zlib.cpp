#include "core/error.h"
#include "train/records/gzip_stream.h"

namespace zinc::train {

std::unique_ptr<ByteStream> open_gzip_stream(const std::string& path) {
  throw ConfigError(str(path,
                        ": this build has no zlib (install zlib1g-dev and build again): unpack "
                        "the file, as by gunzip -k"));
}

}  // namespace zinc::train
