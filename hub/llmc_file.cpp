#include "hub/llmc_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "core/convert.h"
#include "core/error.h"
#include "files/atomic_file.h"
#include "files/convert.h"

namespace zinc::hub {
namespace {

constexpr int32_t kLlmcMagic = 20240326;
constexpr int32_t kVersionF32 = 3;
constexpr int32_t kVersionBf16 = 5;
constexpr size_t kHeaderInts = 256;
constexpr int64_t kHeaderBytes = 4 * kHeaderInts;
constexpr int64_t kVocabularyMultiple = 128;
constexpr int64_t kLlmcBlockBytes = int64_t{4} << 20;
using LlmcHeader = std::array<int32_t, kHeaderInts>;

// One parameter of the file; stacked ones lie layer behind layer.
struct LlmcTensor {
  std::string name;
  Shape shape;               // in the model: [in, out] where turned
  bool turned = false;       // the file has [out, in]
  int64_t padding_rows = 0;  // behind the tensor's own rows
};

std::vector<LlmcTensor> llmc_tensors(const nn::Gpt2Config& config, int64_t padded_vocabulary) {
  const int64_t C = config.hidden_size;
  struct OfLayer {
    std::string_view name;
    Shape shape;
    bool turned;
  };
  const std::array<OfLayer, 12> of_layer = {{{"ln_1.weight", Shape{C}, false},
                                             {"ln_1.bias", Shape{C}, false},
                                             {"attn.c_attn.weight", Shape{C, 3 * C}, true},
                                             {"attn.c_attn.bias", Shape{3 * C}, false},
                                             {"attn.c_proj.weight", Shape{C, C}, true},
                                             {"attn.c_proj.bias", Shape{C}, false},
                                             {"ln_2.weight", Shape{C}, false},
                                             {"ln_2.bias", Shape{C}, false},
                                             {"mlp.c_fc.weight", Shape{C, 4 * C}, true},
                                             {"mlp.c_fc.bias", Shape{4 * C}, false},
                                             {"mlp.c_proj.weight", Shape{4 * C, C}, true},
                                             {"mlp.c_proj.bias", Shape{C}, false}}};
  std::vector<LlmcTensor> tensors;
  tensors.push_back({"transformer.wte.weight", Shape{config.vocab_size, C}, false,
                     padded_vocabulary - config.vocab_size});
  tensors.push_back({"transformer.wpe.weight", Shape{config.max_positions, C}});
  for (const OfLayer& part : of_layer) {
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      tensors.push_back({str("transformer.h.", layer, '.', part.name), part.shape, part.turned});
    }
  }
  tensors.push_back({"transformer.ln_f.weight", Shape{C}});
  tensors.push_back({"transformer.ln_f.bias", Shape{C}});
  return tensors;
}

int64_t stored_elements(const LlmcTensor& tensor) {
  return tensor.shape.numel() + tensor.padding_rows * tensor.shape.dim(-1);
}

// [rows, cols] of elements of `size` bytes becomes [cols, rows].
void turn(const std::byte* in, int64_t rows, int64_t cols, int64_t size, std::byte* out) {
  const auto turn_as = [&]<class T>(T) {
    const T* source = reinterpret_cast<const T*>(in);
    T* target = reinterpret_cast<T*>(out);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) target[c * rows + r] = source[r * cols + c];
    }
  };
  size == 4 ? turn_as(uint32_t{}) : turn_as(uint16_t{});
}

struct ParsedHeader {
  DType dtype;
  nn::Gpt2Config config;
  int64_t padded_vocabulary;
};

ParsedHeader parse_header(const files::InputFile& file) {
  constexpr int64_t kMostLayers = 16'384, kWidest = 1'048'576;
  const auto fail = [&](auto... parts) { throw DataError(str(file.path(), ": ", parts...)); };
  if (file.size() < kHeaderBytes) fail("a header of llm.c has ", kHeaderBytes, " bytes");
  LlmcHeader header;
  file.read(0, std::as_writable_bytes(std::span(header)));
  if (header[1] != kVersionF32 && header[1] != kVersionBf16) {
    fail("version ", header[1], " of llm.c's weights; zinc reads 3 (f32) and 5 (bf16)");
  }
  ParsedHeader opened{.dtype = header[1] == kVersionF32 ? DType::f32 : DType::bf16,
                      .config = {},
                      .padded_vocabulary = header[7]};
  nn::Gpt2Config& config = opened.config;
  config.max_positions = header[2];
  config.vocab_size = header[3];
  config.num_layers = header[4];
  config.num_heads = header[5];
  config.hidden_size = header[6];
  const bool fits = header[2] > 0 && header[3] > 0 && header[4] > 0 && header[5] > 0 &&
                    header[6] > 0 && header[4] <= kMostLayers && header[6] <= kWidest &&
                    header[6] % header[5] == 0 && header[7] >= header[3];
  if (!fits) {
    fail("the header's sizes make no GPT-2: positions ", header[2], ", vocabulary ", header[3],
         " padded to ", header[7], ", layers ", header[4], ", heads ", header[5], ", channels ",
         header[6]);
  }
  return opened;
}

}  // namespace

bool is_llmc_file(const files::InputFile& file) {
  int32_t magic = 0;
  if (file.size() < static_cast<int64_t>(sizeof magic)) return false;
  file.read(0, std::as_writable_bytes(std::span(&magic, 1)));
  return magic == kLlmcMagic;
}

LlmcFile::LlmcFile(files::InputFile file) : WeightFile(file.path()), file_(std::move(file)) {
  const ParsedHeader opened = parse_header(file_);
  dtype_ = opened.dtype;
  config_ = opened.config;
  int64_t at = kHeaderBytes;
  for (const LlmcTensor& tensor : llmc_tensors(config_, opened.padded_vocabulary)) {
    tensors_.push_back({tensor.name, name_of(dtype_), dtype_, tensor.shape});
    offsets_.push_back(at);
    at += stored_elements(tensor) * size_of(dtype_);
  }
  if (at != file_.size()) {
    throw DataError(str(path(), ": the header's model takes ", at, " bytes, the file has ",
                        file_.size(), ": fetch it again"));
  }
}

// Rows [first_row, first_row + m) of a matrix of the model; block: [m, out] of the file's dtype.
void LlmcFile::read_turned(size_t index, int64_t first_row, View block) const {
  const int64_t rows = tensors_[index].shape[0], cols = tensors_[index].shape[1];
  const int64_t m = block.numel() / cols, size = size_of(dtype_);
  std::vector<std::byte> columns(static_cast<size_t>(block.bytes()));
  for (int64_t c = 0; c < cols; ++c) {
    file_.read(offsets_[index] + (c * rows + first_row) * size,
               std::span(columns).subspan(static_cast<size_t>(c * m * size),
                                          static_cast<size_t>(m * size)));
  }
  turn(columns.data(), cols, m, size, static_cast<std::byte*>(block.data()));
}

void LlmcFile::read(size_t index, int64_t begin, View out) const {
  const StoredTensor& tensor = tensors_[index];
  const int64_t count = out.numel(), size = size_of(dtype_);
  require(out.device() == kCpu && out.is_contiguous(),
          "llm.c: read into contiguous host memory, not ", out);
  require(begin >= 0 && count <= tensor.shape.numel() - begin, "llm.c: elements [", begin, ", ",
          begin + count, ") of ", tensor.name, " ", tensor.shape);
  if (!files::can_convert(dtype_, out.dtype())) {
    throw DataError(
        str(path(), ": ", tensor.name, " is ", dtype_, ", which cannot be read as ", out.dtype()));
  }
  // Among tensors of two dimensions only the embeddings are stored as the model has them.
  const bool turned = tensor.shape.rank() == 2 && index > 1;
  if (!turned) {
    files::read_converted(dtype_, out, [&](int64_t first, View raw) {
      file_.read(offsets_[index] + (begin + first) * size,
                 {static_cast<std::byte*>(raw.data()), static_cast<size_t>(raw.bytes())});
    });
    return;
  }
  const int64_t cols = tensor.shape[1];
  const int64_t block_rows = std::max<int64_t>(1, kLlmcBlockBytes / (cols * size));
  std::vector<std::byte> buffer;
  for (int64_t at = begin; at < begin + count;) {
    const int64_t first_row = at / cols;
    const int64_t last_row = (begin + count - 1) / cols;
    const int64_t m = std::min(block_rows, last_row - first_row + 1);
    buffer.resize(static_cast<size_t>(m * cols * size));
    read_turned(index, first_row, View(buffer.data(), dtype_, Shape{m * cols}));
    const int64_t skipped = at - first_row * cols;
    const int64_t n = std::min(m * cols - skipped, begin + count - at);
    void* target = static_cast<std::byte*>(out.data()) + (at - begin) * size_of(out.dtype());
    convert_elements(ConstView(buffer.data() + skipped * size, dtype_, Shape{n}),
                     View(target, out.dtype(), Shape{n}));
    at += n;
  }
}

namespace {

void require_place_in_format(const nn::Gpt2Config& config) {
  const auto refuse = [](std::string_view what) {
    throw ConfigError(str("llm.c's weights have no place for ", what));
  };
  config.validate();
  if (config.activation != nn::Gpt2Activation::gelu_tanh) refuse("an activation but gelu_new");
  if (config.mlp_size() != 4 * config.hidden_size) refuse("n_inner but 4 n_embd");
  if (config.layer_norm_epsilon != 1e-5) refuse("layer_norm_epsilon but 1e-5");
  if (!config.tie_word_embeddings) refuse("an lm_head of its own");
}

// Writes one parameter, block by block of whole rows.
void write_tensor(files::AtomicFile& file, int64_t offset, const LlmcTensor& tensor, DType dtype,
                  const ReadParameter& read) {
  const int64_t size = size_of(dtype);
  const int64_t cols = tensor.shape.dim(-1), rows = tensor.shape.numel() / cols;
  const int64_t block_rows = std::max<int64_t>(1, kLlmcBlockBytes / (cols * 4));
  std::vector<float> values;
  std::vector<std::byte> stored, turned;
  for (int64_t row = 0; row < rows; row += block_rows) {
    const int64_t m = std::min(block_rows, rows - row), n = m * cols;
    values.resize(static_cast<size_t>(n));
    stored.resize(static_cast<size_t>(n * size));
    const View block(values.data(), DType::f32, Shape{n});
    read(tensor.name, row * cols, block);
    convert_elements(block, View(stored.data(), dtype, Shape{n}));
    if (!tensor.turned) {
      file.write(offset + row * cols * size, stored);
      continue;
    }
    turned.resize(stored.size());
    turn(stored.data(), m, cols, size, turned.data());
    for (int64_t c = 0; c < cols; ++c) {
      file.write(offset + (c * rows + row) * size,
                 std::span(turned).subspan(static_cast<size_t>(c * m * size),
                                           static_cast<size_t>(m * size)));
    }
  }
}

}  // namespace

void write_llmc_file(const std::string& path, const nn::Gpt2Config& config, DType dtype,
                     const ReadParameter& read) {
  require(dtype == DType::f32 || dtype == DType::bf16, "llm.c: weights are f32 or bf16, not ",
          dtype);
  require_place_in_format(config);
  const int64_t padded =
      (config.vocab_size + kVocabularyMultiple - 1) / kVocabularyMultiple * kVocabularyMultiple;
  const std::vector<LlmcTensor> tensors = llmc_tensors(config, padded);
  int64_t bytes = kHeaderBytes;
  for (const LlmcTensor& tensor : tensors) bytes += stored_elements(tensor) * size_of(dtype);
  LlmcHeader header{};
  header[0] = kLlmcMagic;
  header[1] = dtype == DType::f32 ? kVersionF32 : kVersionBf16;
  const std::array<int64_t, 6> sizes = {config.max_positions, config.vocab_size,  config.num_layers,
                                        config.num_heads,     config.hidden_size, padded};
  for (size_t i = 0; i < sizes.size(); ++i) header[2 + i] = static_cast<int32_t>(sizes[i]);

  files::AtomicFile file(path, bytes);  // unwritten bytes, the padding, read as zeros
  file.write(0, std::as_bytes(std::span(header)));
  int64_t at = kHeaderBytes;
  for (const LlmcTensor& tensor : tensors) {
    write_tensor(file, at, tensor, dtype, read);
    at += stored_elements(tensor) * size_of(dtype);
  }
  file.commit();
}

}  // namespace zinc::hub
