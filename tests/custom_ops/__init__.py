"""Tests of ops that users define."""
