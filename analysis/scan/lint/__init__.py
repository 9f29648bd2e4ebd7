"""Sources of nondeterminism in code: facts of a file, rules, the judgement of a program."""
