//! Empty: this package is its dependencies (see its manifest).
