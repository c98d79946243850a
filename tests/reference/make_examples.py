"""Writes tests/reference/examples.json: what Python makes of chats, masks and tables.

Needs: jinja2 and tokenizers (3.1.6 and 0.23.3 made the present file). Run from the root of the tree:
  python tests/reference/make_examples.py
Chat templates are those that the models publish; masks follow the usual tutorial of instruction tuning, and the
offsets of Hugging Face's tokenizers; tables are read by Python's csv.
"""

import csv
import io
import json

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

TEMPLATES = {
    # meta-llama/Meta-Llama-3-8B-Instruct
    "llama3": ("<|begin_of_text|>", "<|eot_id|>",
               "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
               "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + "
               "'<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
               "{{ content }}{% endfor %}"),
    # ChatML, as in OpenHermes and (without its default system message) Qwen 2
    "chatml": ("", "<|im_end|>",
               "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
               "'<|im_end|>' + '\n'}}{% endfor %}"),
    # mistralai/Mistral-7B-Instruct-v0.2
    "mistral": ("<s>", "</s>",
                "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 "
                "== 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') "
                "}}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
                "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}"
                "{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"),
    # THUDM/chatglm3-6b
    "chatglm3": ("", "</s>",
                 "{% for message in messages %}{% if loop.first %}[gMASK]sop<|{{ message['role'] }}|>\n "
                 "{{ message['content'] }}{% else %}<|{{ message['role'] }}|>\n {{ message['content'] }}{% endif %}"
                 "{% endfor %}"),
}

U, A, S = "user", "assistant", "system"
CHATS = [
    [(U, "Hi"), (A, "Hello there.")],
    [(S, "You are terse."), (U, "Who are you?"), (A, "Me.")],
    [(U, "  spaces \n"), (A, "\n around  "), (U, "\tand\ttabs"), (A, " ")],
    [(U, ""), (A, "")],
    [(U, "你好，世界"), (A, "naïve café 🙂"), (U, "<|eot_id|>"), (A, "[INST] x [/INST]</s>")],
    [(U, "a"), (A, "b"), (U, "c"), (A, "d"), (U, "e")],
    [(A, "I begin."), (U, "so?")],
]

PAIRS = [
    ("Translate: cat", "Katze"), ("Say hello.", "Hello, world!"), ("x", ""), ("", "only an answer"),
    ("A question that is longer than the room there is for it, surely", "no"), ("two\nlines", "and\ntwo\n"),
    ("ends in a space ", " begins with one"), ("数数", "一二三"), ("the end", "of it<|endoftext|>"),
    ("newline at the end\n", "\nand at the front"),
]
TOKENIZERS = {"gpt2": "<|endoftext|>", "llama3": "<|end_of_text|>", "qwen2": "<|endoftext|>", "roberta": "</s>"}

TABLES = [
    "a,b\n1,2\n3,4\n", "a,b\r\n1,2\r\n", "a,b\r1,2\r", "a,b\n1,2", 'a,b\n"x, y","say ""hi"""\n', 'a,b\n"two\nlines",z\n',
    'a,b\n"two\r\nlines",z\r\n', "a,b\n\n\n1,2\n\n", 'a,b\nx"y,z""w\n', 'a,b\n"","x"\n', "a,b\n,\n", "a\n\"\"\n", 'a,b\n"x"y,z\n',
    'a,b\n1,2\n"open,3\n', "a,b\n 1 , 2 \n", 'a,b\n "x",y\n', "a,b\n1\n", "a,b\n1,2,3\n", "a,b\nä,日本\n", 'a,b\n"""",""""""\n',
    'a,b\n"x"\n', "a;b\n1;2\n", "a,b\n1,2\n\n3\n",
]


def render_chats():
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)

    def raise_exception(message):
        raise ValueError(message)

    environment.globals["raise_exception"] = raise_exception
    cases = []
    for name, (bos, eos, template) in TEMPLATES.items():
        for chat in CHATS:
            messages = [{"role": role, "content": content} for role, content in chat]
            if name == "mistral" and chat[0][0] == S:
                continue  # the template refuses a system message
            try:
                text = environment.from_string(template).render(messages=messages, bos_token=bos, eos_token=eos)
            except ValueError:
                text = None
            cases.append({"format": name, "messages": messages, "text": text})
    return cases


def masks():
    cases = []
    for name, eos_text in TOKENIZERS.items():
        tokenizer = Tokenizer.from_file(f"tests/reference/tokenizers/{name}.json")
        eos = tokenizer.token_to_id(eos_text)
        for prompt, answer in PAIRS:
            for room in (12, 64):
                tokenizer.enable_truncation(room)
                encoded = tokenizer.encode(prompt + "\n" + answer)
                tokenizer.no_truncation()
                ids, offsets, special = encoded.ids, encoded.offsets, encoded.special_tokens_mask
                begin = len(prompt) + 1
                # A special token that the text holds has offsets; one around the text has (0, 0).
                by_offsets = [int(end > begin) for _, end in offsets]
                if name == "roberta":  # </s> behind the text
                    by_offsets = [int(by or (mark and i > 0 and offset == (0, 0)))
                                  for i, (by, mark, offset) in enumerate(zip(by_offsets, special, offsets))]
                if ids[-1] != eos and len(ids) < room:
                    ids.append(eos)
                    by_offsets.append(1)
                labels = list(ids)
                masked = len(tokenizer.encode(prompt).ids)
                labels[:masked] = [-100] * min(masked, len(labels))
                cases.append({"tokenizer": name, "prompt": prompt, "answer": answer, "room": room, "ids": ids,
                              "labels": labels,
                              "labels_by_offsets": [i if t else -100 for i, t in zip(ids, by_offsets)]})
    return cases


def tables():
    cases = []
    for text in TABLES:
        names, rows, error = None, [], False
        try:
            for row in csv.reader(io.StringIO(text, newline=""), strict=True):
                if not row:
                    continue
                if names is None:
                    names = row
                elif len(row) != len(names):
                    error = True
                    break
                else:
                    rows.append(row)
        except csv.Error:
            error = True
        cases.append({"text": text, "names": names, "rows": rows, "error": error})
    return cases


with open("tests/reference/examples.json", "w") as file:
    json.dump({"chats": render_chats(), "masks": masks(), "tables": tables()}, file, ensure_ascii=True, indent=1)
    file.write("\n")
