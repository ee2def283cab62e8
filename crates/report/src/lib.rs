//! Tables and figures from journals alone
