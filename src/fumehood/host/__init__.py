"""The machine and the interpreter that Fumehood itself runs on."""
