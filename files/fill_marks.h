// files/fill_marks.h: texts with places to fill, as the pages that cmake/Embed.cmake embeds.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zinc::files {

// `text` with each mark, as "@data@", replaced by the text given with it. Marks occur in `text` in
// the order given, each once; the inserted texts are not searched for marks. A missing mark is an
// InternalError.
std::string fill_marks(std::string_view text,
                       const std::vector<std::pair<std::string_view, std::string_view>>& marks);

}  // namespace zinc::files
