"""What a person starts: the local Qwen server and the chat. `python3 -m packages.qianchat --help`."""
