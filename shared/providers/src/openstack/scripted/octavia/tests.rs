//! The rules of the scripted Octavia.
