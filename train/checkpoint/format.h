// train/checkpoint/format.h: the contents of the files of a checkpoint.
//
// Note [Files of a checkpoint]
//   step-000120/
//     manifest.json                    below: written last; its first bytes are its own checksum
//     state-00000-of-00002.safetensors what rank 0 of 2 kept: a tensor "<kind>.<parameter>" for
//                                      each part, flat, f32 (f64 models: f64); Python can look in
//     state-00000-of-00002.json        its index: where in the parameter each part lies, and the
//                                      CRC-32C of every block of kBlockNumel elements
//     config.json, ...                 the model's configuration, tokenizer files, the resolved
//                                      configuration
// Parts are ranges of the whole, flat parameter, or of a slice of it where ranks shared it. So a
// checkpoint does not depend on shards, groups or tiers, and any world and mesh can read it.
// Checksums are computed from memory, before it is written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"
#include "core/tensor_slice.h"
#include "files/json/value.h"
#include "zero/update/training_state.h"

namespace zinc::train {

inline constexpr int64_t kCheckpointVersion = 1;
inline constexpr int64_t kBlockNumel = int64_t{1} << 20;  // elements under one checksum

// Note [What a manifest may cost]
// A manifest is believed once it has been read, so its cost is limited before: its bytes, nesting
// and values (a rank takes about 220 bytes and 4 values, a frozen parameter as many: 9000 of both
// together). The worst that fits is refused in less than 50 ms. An index may have twice the bytes
// of its state file, whose header has an entry for each part, too.
// save_checkpoint() writes nothing beyond these limits.
inline constexpr int64_t kMaxManifestBytes = int64_t{2} << 20;
inline constexpr int64_t kMaxManifestValues = 40'000;
inline constexpr int64_t kMaxIndexBytes = int64_t{64} << 20;
inline constexpr int64_t kMaxFormatDepth = 32;
inline constexpr size_t kMaxStoredNameBytes = 512;  // of a parameter or a kind of state
// Upper bound of the index of a state file with this number of bytes.
constexpr int64_t max_index_bytes(int64_t state_file_bytes) {
  return state_file_bytes > kMaxIndexBytes / 2 ? kMaxIndexBytes
                                               : (int64_t{64} << 10) + 2 * state_file_bytes;
}

// A file of the folder, by its plain name.
struct StoredFile {
  std::string name;
  int64_t bytes = 0;
  uint32_t crc = 0;  // CRC-32C of all bytes
};

// A part of one kind of a parameter: elements [begin, begin + count) of the flat whole.
struct StoredPart {
  std::string name;
  std::string kind;
  Shape shape;  // of the whole parameter, or of these values of it
  // Where ranks shared the parameter: the slice that begin and count refer to.
  std::optional<TensorSlice> slice{};
  int64_t begin = 0;
  int64_t count = 0;
  std::vector<uint32_t> blocks;  // CRC-32C of each kBlockNumel elements, the last one's fewer
};

// The index of one state file.
struct StateIndex {
  std::string file;
  int64_t bytes = 0;
  int64_t header_bytes = 0;  // before the data, the length among them
  uint32_t header_crc = 0;
  DType dtype = DType::f32;
  std::vector<StoredPart> parts;
};

// Frozen weights. A checkpoint names the folder that holds them instead of copying them.
struct FrozenWeights {
  struct Parameter {
    std::string name;
    Shape shape;
    DType dtype = DType::f32;  // the model's: the folder's values are rounded to it
    uint32_t crc = 0;          // CRC-32C of the values in that dtype
  };
  std::string folder;                 // of a model; absolute
  std::vector<Parameter> parameters;  // in the order of their names
};

struct Manifest {
  int64_t world = 0;  // ranks that wrote it
  uint64_t seed = 0;  // for random numbers
  zero::TrainingState state;
  files::json::Object client_state;  // set by the caller of save
  std::vector<StoredFile> files;     // all others but the state files, which their indices name
  std::vector<std::string> indices;  // names among `files`
  std::optional<FrozenWeights> frozen{};
};

std::string state_file_name(int rank, int world);     // without its ending
std::string state_file_of(const std::string& index);  // both with their endings

std::string to_json(const StateIndex& index);
std::string to_json(const Manifest& manifest);
// `path` stands in messages. DataError with place: JSON as json::parse; another format or a newer
// version, names that are not plain file names, numbers that contradict each other; a manifest
// whose checksum is not that of its text; see Note [What a manifest may cost].
StateIndex parse_state_index(std::string text, const std::string& path);
Manifest parse_manifest(std::string text, const std::string& path);

}  // namespace zinc::train
