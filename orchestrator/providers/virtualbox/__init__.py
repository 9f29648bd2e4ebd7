"""Virtual machines under VirtualBox 6.1 and 7.x: what the reference study ran on."""
