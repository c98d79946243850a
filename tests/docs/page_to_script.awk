# The blocks of a page that run, as a bash script whose lines have the numbers that they have on the page.
#
#   <!-- runs -->                     before a block of sh: it runs
#   <!-- file: NAME -->               before any block: it becomes the file NAME
#   <!-- before the commands: ...-->  sh that a reader does not see: it makes what the page takes for granted

function fail(text) { print FILENAME ":" FNR ": " text >"/dev/stderr"; failed = 1; exit 1 }

hidden && /-->/ { hidden = 0; print ""; next }
hidden { print; next }
/^<!-- before the commands:$/ { hidden = 1; print ""; next }
/^<!-- runs -->$/ { mark = "runs"; print ""; next }
/^<!-- file: [^ ]+ -->$/ { mark = $3; print ""; next }
/^<!-- (run|file)/ { fail("a mark is '<!-- runs -->' or '<!-- file: NAME -->'") }
/^```/ && inside {
  print(inside == "file" ? "ZINC_END_OF_FILE" : "")
  inside = ""
  next
}
/^```/ {
  inside = mark == "" ? "text" : mark == "runs" ? "runs" : "file"
  if (inside == "runs" && $0 != "```sh") fail("a block that runs begins with ```sh")
  print(inside == "file" ? "cat >'" mark "' <<'ZINC_END_OF_FILE'" : "")
  if (inside != "text") blocks++
  mark = ""
  next
}
inside == "runs" || inside == "file" { print; next }
mark != "" { fail("a block follows a mark at once") }
{ print "" }
END { if (!failed && (hidden || inside)) { FNR = NR; fail("a block has no end") } }
