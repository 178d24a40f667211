"""What `make lint` can say of the project's English: prose.py names|sentences FILE...

names      an assertion's name is understood alone in a CI log: it has three words or more, and does
           not begin with "it", nor with "and", "nor" or "that", also after a colon.  A name with a
           variable has unknown words.
sentences  a sentence of a header's comments or of a help text has at most 25 words.  It ends with
           one of .?! or with a colon before a capital; lines indented by four blanks, and tables
           with three blanks between columns, are pictures.

Each finding is a line FILE:LINE: WORDS.
"""
import re
import sys

MOST = 25
LITERAL = r'"((?:[^"\\]|\\.)*)"'
NAME_AT = {'ok': 1, 'is': 2, 'has': 2, 'bound': 2}  # in C and in shell: which argument
SHELL_AT = dict(NAME_AT, status=1, out_has=1, err_has=1, one_line=0, one_error=0)


def c_calls(text):
    """(offset, name of the macro, its arguments) of each assertion of C."""
    for m in re.finditer(r'\b(ok|is|has|bound)\(', text):
        args, depth, at, i = [], 1, m.end(), m.end()
        while i < len(text) and depth:
            c = text[i]
            if c in '"\'':
                i += 1
                while i < len(text) and text[i] != c:
                    i += 2 if text[i] == '\\' else 1
            elif c in '([{':
                depth += 1
            elif c in ')]}':
                depth -= 1
            if depth == 1 and c == ',' or not depth:
                args.append(text[at:i])
                at = i + 1
            i += 1
        yield m.start(), m.group(1), args


def sh_calls(line):
    """(name of the function, its words) of each assertion of a shell line; quotes stay."""
    words, word, i, n = [], '', 0, len(line)
    calls = []

    def end():
        nonlocal word
        if word:
            words.append(word)
        word = ''

    def command():
        end()
        while words and words[0] in ('do', 'then', 'else', '{', '!', 'if', 'while', '('):
            words.pop(0)
        if words and words[0] in SHELL_AT:
            calls.append((words[0], words[1:]))
        words.clear()

    while i < n:
        c = line[i]
        if c == '\\':
            word += line[i:i + 2]
            i += 2
            continue
        if c == '#' and not word:
            break
        if c == "'":
            j = line.find("'", i + 1)
            if j < 0:
                return calls  # it ends on another line
            word += line[i:j + 1]
            i = j + 1
            continue
        if c == '"' or line.startswith('$(', i) or line.startswith('${', i):
            j, deep, quoted = i, [], False
            while j < n:
                d = line[j]
                if d == '\\':
                    j += 2
                    continue
                if d == '"':
                    if deep and deep[-1] == '"':
                        deep.pop()
                    else:
                        deep.append('"')
                elif line.startswith('$(', j) or line.startswith('${', j):
                    deep.append(')' if line[j + 1] == '(' else '}')
                    j += 1
                elif deep and d == deep[-1]:
                    deep.pop()
                elif d == "'" and deep and deep[-1] == ')':
                    j = line.find("'", j + 1)
                    if j < 0:
                        return calls
                j += 1
                if not deep:
                    break
            if deep:
                return calls
            word += line[i:j]
            i = j
            continue
        if c in ';&|{}' and (c in ';&|' or not word):
            command()
        elif c in ' \t':
            end()
        else:
            word += c
        i += 1
    command()
    return calls


def judge(where, name, variable):
    known = re.sub(variable, ' ', name)
    first = re.match(r'(?:.*: )?(and|nor|that)\b|(it)\b', name)
    if first:
        word = first.group(1) or first.group(2)
        print(f'{where}: an assertion\'s name begins with "{word}": {name}')
    elif known == name and len(name.split()) < 3:
        print(f'{where}: an assertion\'s name has fewer than three words: {name}')


def names(path):
    text = open(path, encoding='utf-8', errors='replace').read()
    if path.endswith('.c'):
        for at, macro, args in c_calls(text):
            if len(args) > NAME_AT[macro]:
                arg = args[NAME_AT[macro]].strip()
                if re.fullmatch(rf'({LITERAL}|PRI\w+|\s)+', arg):
                    name = ''.join(re.findall(LITERAL, arg))
                    judge(f'{path}:{text.count(chr(10), 0, at) + 1}', name, r'%[^%]')
        return
    here = None
    for n, line in enumerate(text.split('\n'), 1):
        if here:  # the lines of a here document
            if line.strip() == here:
                here = None
            continue
        for function, words in sh_calls(line):
            if len(words) > SHELL_AT[function]:
                word = words[SHELL_AT[function]]
                if re.fullmatch(r'"[^"]*"|\'[^\']*\'', word):
                    judge(f'{path}:{n}', word[1:-1], r'[$`]')
        m = re.search(r'<<-?\s*[\'"\\]?(\w+)', line)
        here = m.group(1) if m and '<<<' not in line else None


def paragraphs(text):
    out = []
    for k, line in enumerate(text.split('\n')):
        if not line.strip() or re.match(r'(----|@|\.)', line.strip()) or \
                (k and line.startswith('    ')) or re.search(r'\S {3,}\S', line):
            out.append('\0')
        elif re.match(r'\s*([-*]|\d+\.) ', line):
            out.append('\0' + line.strip())
        elif ' :: ' in line:
            out.append('\0' + line.split(' :: ', 1)[1])
        elif line.startswith('# '):
            out.append('\0')
        else:
            out.append(line.strip())
    return ' '.join(out).split('\0')


def long_ones(where, text):
    for paragraph in paragraphs(text):
        whole = re.sub(r'\b(e\.g|i\.e|al|vs|cf)\.', r'\1', ' '.join(paragraph.split()))
        for sentence in re.split(r'(?<=[.!?])\s+|(?<=[a-z)]:)\s+(?=[A-Z`"\'(])|(?<=;)\s+(?=[A-Z])', whole):
            words = sum(1 for word in sentence.split() if re.search(r'[A-Za-z0-9]', word))
            if words > MOST:
                print(f'{where}: a sentence of {words} words: {sentence}')


def sentences(path):
    text = open(path, encoding='utf-8', errors='replace').read()
    if path.endswith('.h'):
        for m in re.finditer(r'/\*(.*?)\*/', text, re.S):
            body = re.sub(r'^\s*\* ?', '', m.group(1), flags=re.M)
            long_ones(f'{path}:{text.count(chr(10), 0, m.start()) + 1}', body)
    helps = r'\.(?:help|about|summary)\s*=\s*' if '/topics' not in path else ''
    for m in re.finditer(helps + rf'((?:{LITERAL}[\s\\]*)+)', text):
        body = ''.join(re.findall(LITERAL, m.group(1)))
        body = body.replace('\\n', '\n').replace('\\"', '"')
        long_ones(f'{path}:{text.count(chr(10), 0, m.start()) + 1}', body)


if __name__ == '__main__':
    for file in sys.argv[2:]:
        {'names': names, 'sentences': sentences}[sys.argv[1]](file)
