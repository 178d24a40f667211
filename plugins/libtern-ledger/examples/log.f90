! gfortran log.f90 $(pkg-config --libs tern-ledger) -o log && ./log LEDGER
! tern ledger plot from-fortran -l LEDGER
program log_values
  use, intrinsic :: iso_c_binding
  implicit none
  interface
    function tern_log_open(ledger_dir, run_name) bind(c) result(log)
      import; character(kind=c_char), intent(in) :: ledger_dir(*), run_name(*)
      type(c_ptr) :: log
    end function
    integer(c_int) function tern_log_value(log, step, name, value) bind(c)
      import; type(c_ptr), value :: log; integer(c_int64_t), value :: step
      character(kind=c_char), intent(in) :: name(*); real(c_double), value :: value
    end function
    integer(c_int) function tern_log_close(log) bind(c)
      import; type(c_ptr), value :: log
    end function
  end interface
  type(c_ptr) :: log
  integer(c_int64_t) :: step
  character(1000) :: ledger
  call get_command_argument(1, ledger)
  log = tern_log_open(trim(ledger)//c_null_char, "from-fortran"//c_null_char)
  do step = 1, 100
    if (tern_log_value(log, step, "loss"//c_null_char, 4.0_c_double / step) < 0) error stop "not logged"
  end do
  if (tern_log_close(log) < 0) error stop "values were lost"
end program
