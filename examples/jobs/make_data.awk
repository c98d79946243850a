# Small data sets for the jobs beside this file, made up and the same every time:
#
#   awk -v kind=stories -v count=2000 -v seed=1 -f make_data.awk >stories.txt
#
# kind: stories (text), questions (instruction, output), chats (messages), dialogues (dialogue,
# summary), reviews (text, label). Another seed gives other ones of the same kind; with held=1
# questions and chats are those that are not asked without it.

# Lewis, Goodman and Miller, 1969: exact in doubles.
function random(n) {
  state = (16807 * state) % 2147483647
  return int(state / 2147483647 * n)
}
function list(text, to) { return split(text, to, " ") }
function any(of, n) { return of[1 + random(n)] }
function start(text) { return toupper(substr(text, 1, 1)) substr(text, 2) }
function quoted(text) {
  gsub(/"/, "\\\"", text)
  return "\"" text "\""
}

function story(    who, friend, what, where, day, i) {
  if (random(2)) {
    i = 1 + random(towns)
    return any(name, names) " went to " town[i] " by boat, for " town[i] " lies on the " river[i] \
      ". The " river[i] " flows through " town[i] "."
  }
  who = any(name, names)
  do friend = any(name, names); while (friend == who)
  what = any(thing, things)
  where = any(place, places)
  day = any(weekday, weekdays)
  return "On " day " " who " went to the " where " with a " any(colour, colours) " " what ". " friend \
    " was at the " where " too. \"" start(any(greeting, greetings)) ", " who ",\" said " friend \
    ". \"Is that " what " yours?\" \"It is,\" said " who ", \"but you may have it.\" So the " what \
    " went home with " friend "."
}

# Each town has its river, as the stories tell. Of five questions about a town one is asked
# with held=1 alone.
function question(    i, form) {
  do {
    i = 1 + random(towns)
    form = random(5)
  } while (((i + form) % 5 == 0) != (held + 0))
  asked = form == 0 ? "Which river flows through " town[i] "?" : \
    form == 1 ? "Name the river that " town[i] " lies on." : \
    form == 2 ? "Tell me on which river " town[i] " lies." : \
    form == 3 ? "Is there a river in " town[i] "?" : "What do they call the river of " town[i] "?"
  reply = "The " river[i] "."
}

function dialogue(    who, friend, what, where, day) {
  who = any(name, names)
  do friend = any(name, names); while (friend == who)
  what = any(thing, things)
  where = any(place, places)
  day = any(weekday, weekdays)
  said = who ": " start(any(greeting, greetings)) " " friend "! Do you still have my " what "?\n" \
    friend ": " start(any(yes, yeses)) ", it is " any(colour, colours) " and under my bed.\n" \
    who ": Could you bring it to the " where " on " day "?\n" \
    friend ": " start(any(yes, yeses)) ", see you there."
  told = friend " brings the " what " to the " where " on " day "."
}

function review(    good, n, i, at, words) {
  good = random(2)
  n = 8 + random(12)
  at = 1 + random(n)
  words = ""
  for (i = 1; i <= n; i++) {
    words = words (i > 1 ? " " : "") any(plain, plains)
    if (i == at) words = words " " (good ? any(praise, praises) : any(blame, blames))
  }
  text = words " and " (good ? any(praise, praises) : any(blame, blames)) "."
  label = good ? "pos" : "neg"
}

BEGIN {
  state = 1000003 + 7919 * seed
  for (i = 0; i < 20; i++) random(2)
  names = list("Anna Ben Clara David Emma Felix Greta Hugo Ida Jonas Klara Leo", name)
  things = list("kite ball book lamp drum boat hat clock basket ladder", thing)
  places = list("harbour market school forest bridge station garden mill", place)
  weekdays = list("Monday Tuesday Wednesday Thursday Friday Saturday Sunday", weekday)
  colours = list("red green blue yellow white black", colour)
  greetings = list("hello hi welcome", greeting)
  yeses = list("yes sure certainly", yes)
  towns = list("London Paris Rome Vienna Prague Cologne Dresden Lisbon Turin Warsaw Basel Rouen " \
    "Florence Hamburg Zaragoza Bordeaux", town)
  list("Thames Seine Tiber Danube Vltava Rhine Elbe Tagus Po Vistula Rhine Seine Arno Elbe Ebro " \
    "Garonne", river)
  plains = list("the film story plot actor scene music ending script was it a very with of that in", plain)
  praises = list("wonderful great moving clever brilliant funny warm superb", praise)
  blames = list("dull awful boring clumsy terrible weak cold tedious", blame)
  for (i = 0; i < count; i++) {
    if (kind == "stories") {
      print story()
    } else if (kind == "questions") {
      question()
      print "{\"instruction\": " quoted(asked) ", \"output\": " quoted(reply) "}"
    } else if (kind == "chats") {
      question()
      print "{\"messages\": [{\"role\": \"user\", \"content\": " quoted(asked) \
        "}, {\"role\": \"assistant\", \"content\": " quoted(reply) "}]}"
    } else if (kind == "dialogues") {
      dialogue()
      gsub(/\n/, "\\n", said)
      print "{\"dialogue\": " quoted(said) ", \"summary\": " quoted(told) "}"
    } else if (kind == "reviews") {
      review()
      print "{\"text\": " quoted(text) ", \"label\": " quoted(label) "}"
    } else {
      print "make_data.awk: kind must be stories, questions, chats, dialogues or reviews" >"/dev/stderr"
      exit 64
    }
  }
}
