// text/scores/porter_stemmer.h: English words without their endings.
//
// M. F. Porter, "An algorithm for suffix stripping", Program 14 (1980), with the changes that
// NLTK's PorterStemmer makes by default and rouge_score therefore uses: a list of irregular words;
// -ies and -ied of four letters lose one letter; y becomes i behind a consonant only; -alli,
// -fulli, -bli and -logi; two letters, vowel and consonant, count as consonant, vowel, consonant.
#pragma once

#include <string>
#include <string_view>

namespace zinc::text {

// `word`: lower-case letters and digits.
std::string porter_stem(std::string_view word);

}  // namespace zinc::text
