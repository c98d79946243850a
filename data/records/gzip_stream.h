// data/records/gzip_stream.h: a .gz file, unpacked by zlib.
#pragma once

#include <memory>
#include <string>

#include "data/records/byte_stream.h"

namespace zinc::data {

// Several members in a row are one text (RFC 1952). DataError, with the byte, for a file that is
// damaged or ends early. ConfigError in a build without zlib.
std::unique_ptr<ByteStream> open_gzip_stream(const std::string& path);

}  // namespace zinc::data
