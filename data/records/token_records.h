// data/records/token_records.h: the documents of a token file as records of field "input_ids".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/records/record_reader.h"
#include "data/token_file.h"

namespace zinc::data {

class TokenRecords final : public RecordReader {
 public:
  // Reads the .idx beside the file, which `zinc tokenize prepare` writes. DataError where there is
  // none, or it does not fit the file.
  explicit TokenRecords(const std::string& path);
  bool next(RawRecord& raw) override;
  Record parse(const RawRecord& raw) const override;

 private:
  TokenFile file_;
  std::vector<uint64_t> offsets_;  // beginnings of the documents, then the number of tokens
  size_t next_ = 0;
};

}  // namespace zinc::data
